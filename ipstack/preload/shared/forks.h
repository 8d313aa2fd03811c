// forks.h - what becomes of a process's sockets in a child, and in a program that it becomes; used by process_calls.cc and the runtime.
//
// The stack stays the parent's: its memory is shared with the network interface, and one process at a time may speak for it. A child begins
// without a stack. It adopts an inherited socket when it first uses it:
// - a listener or a datagram socket: it joins its parent's claim of the port, in a stack of its own;
// - a connection: it asks its parent to move the connection (moves.cc), or else to carry its bytes (socket_proxies.h).
// Connections that still arrive at the parent's listener are transferred to the child when it accepts.
//
// A process that becomes another program, or ends, has no memory left for a stack. Other processes may still have its connections, and its
// peers may lack a part of what it sent. Then it leaves an orphan process, one without a program, which goes on with the stack as a parent
// does. The new program is as its child.
#pragma once

#include <string>

#include "ipstack/preload/file.h"
#include "ipstack/preload/shared/socket_proxies.h"

namespace unet::preload {

class Forks {
 public:
  // Handlers of fork().
  static void before() noexcept;
  static void in_parent() noexcept;
  static void in_child() noexcept;

  // Under the lock: makes an inherited socket this process's own. False: it cannot be had any longer; the shadow is what is left.
  // `moves`: a connection goes on in this process's stack, if it can (moves.cc).
  static bool adopt(File& file, bool moves = true);

  // Without the lock, as the process ends: closes what no other process has, and gives peers a moment to acknowledge what was sent.
  static void close_own(Runtime& runtime);
  // Before this process becomes another program, or ends: leaves an orphan process if one is needed. False: there is none. Without the
  // lock, which a process that ends has then. Not where the network interface is inside this process, and ends with it.
  static bool leave_orphan(bool goes_on);
  // Before this process becomes another program: what it leaves open is described in a variable of its environment, kVariable=..., which
  // this returns; connections become socket pairs. Empty: there is nothing. `stays`: another process does, and this one goes on.
  static std::string prepare_exec(bool stays = false);
  // It did not; or the program is another process (posix_spawn()).
  static void forget_exec() noexcept;
  // Afterwards, there.
  static void read_left();
  static constexpr const char* kVariable = "UNET_SOCKETS_LEFT";

 private:
  static void begin(Runtime& runtime);
  static void forget_proxies(Runtime& runtime);
  static void go_on_as_parent(Runtime& runtime);
  static void go_on_as_child(Runtime& runtime);
  static bool may_leave_orphan(const Runtime& runtime) noexcept;
  static bool carries_for_others(Runtime& runtime);
  static bool needs_orphan(Runtime& runtime);
  static void close_program(Runtime& runtime, int told);
  static void forget_program(Runtime& runtime);
  [[noreturn]] static void run_orphan(Runtime& runtime, int told);
  static void leave_stack(Runtime& runtime, const std::shared_ptr<ParentChannel>& parent);
  static bool join(File& file);
  static bool take(File& file, ParentMessage::Kind kind);
  static bool may_move;  // of the child that begins: SocketProxies::may_let_go()
  static bool may_receive(File& file);
  static int await_stream(const File& file);
  static bool receive(File& file, int memory);
  static void read_origins(File& file, std::string_view text, std::vector<std::shared_ptr<ParentChannel>>& channels);
};

}  // namespace unet::preload
