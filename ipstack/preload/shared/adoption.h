// adoption.h - a process makes a socket its own that it inherited, or received by SCM_RIGHTS; used by calls on such a socket under the
// runtime's lock.
//
// - A listener or a datagram socket joins the claim of its port, in this process's stack.
// - A connection moves to this process's stack (moves.cc), or its owner carries its bytes (socket_proxies.h).
#pragma once

#include <utility>

#include "ipstack/preload/file.h"
#include "ipstack/preload/shared/share_channel.h"

namespace unet::preload {

class Adoption {
 public:
  // False: no owner has the socket any longer, and only the shadow is left. `moves`: a connection moves if possible.
  static bool adopt(File& file, bool moves = true);
  // Asks the owner of a connection to move it or to carry its bytes, by `kind`.
  static bool take(File& file, ParentMessage::Kind kind);
  // Before fork(): whether the child may move connections (SocketProxies::may_let_go()). Returns the value before.
  static bool allow_moves(bool may) noexcept { return std::exchange(may_move_, may); }

 private:
  static bool join(File& file);
  static bool may_receive(File& file);
  static int await_stream(const File& file);
  static bool receive(File& file, int memory);

  inline static bool may_move_ = true;
};

}  // namespace unet::preload
