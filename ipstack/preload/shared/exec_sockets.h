// exec_sockets.h - hands sockets to the program that this process becomes (exec) or starts (posix_spawn()); used by process_calls.cc.
//
// Connections become socket pairs, which need no description. A variable of the environment describes listeners and datagram sockets, with
// channels to the processes that have them. The new program adopts them as a child does (adoption.h).
#pragma once

#include <string>

namespace unet::preload {

class ExecSockets {
 public:
  // Returns NAME=VALUE for the environment of the new program. Empty: no socket stays open. `stays`: another process executes the program,
  // and this one goes on.
  static std::string prepare(bool stays = false);
  // After prepare(), if exec failed or another process executes the program.
  static void forget() noexcept;
  // In the new program: reads the variable.
  static void read();
};

}  // namespace unet::preload
