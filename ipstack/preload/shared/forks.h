// forks.h - hands a process's sockets to a child (fork) and to the program that replaces it (exec); used by process_calls.cc and the
// runtime.
//
// The stack stays the parent's: its memory is shared with the network interface, and only one process at a time may use it. A child begins
// without a stack. It adopts an inherited socket when it first uses it:
// - a listener or a datagram socket: it joins its parent's claim of the port, in a stack of its own;
// - a connection: it asks its parent to move the connection (moves.cc), or else to carry its bytes (socket_proxies.h).
// Connections that still arrive at the parent's listener are transferred to the child when it accepts.
//
// A process that executes another program, or ends, loses its stack's memory. Other processes may still have its connections, and peers may
// not have received all data. It then leaves an orphan process without a program, which runs the stack as a parent does. The new program is
// in the place of a child.
#pragma once

#include <string>

#include "ipstack/preload/file.h"
#include "ipstack/preload/shared/socket_proxies.h"

namespace unet::preload {

class Forks {
 public:
  // Run before and after fork() (pthread_atfork).
  static void before() noexcept;
  static void in_parent() noexcept;
  static void in_child() noexcept;

  // Under the lock: adopts an inherited socket. False: no owner has it any longer, and only the shadow is left. `moves`: a connection moves
  // to this process's stack if possible (moves.cc).
  static bool adopt(File& file, bool moves = true);

  // Without the lock, as the process ends: closes sockets that no other process has, and gives peers a moment to acknowledge data.
  static void close_own(Runtime& runtime);
  // Without the lock, before this process executes another program (`goes_on`) or ends: leaves an orphan process if one is needed. False:
  // there is none. If it is true and the process ends, the lock stays held. An embedded network interface ends with this process, so there
  // is no orphan.
  static bool leave_orphan(bool goes_on);
  // Before exec(): returns a variable of the environment, kVariable=..., that describes the sockets that stay open; connections become
  // socket pairs. Empty: none stays open. `stays`: another process executes the program (posix_spawn()), and this one goes on.
  static std::string prepare_exec(bool stays = false);
  // After prepare_exec(), if exec() failed or another process executes the program.
  static void forget_exec() noexcept;
  // In the new program: reads kVariable.
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
  static bool may_move;  // whether the new child may move connections (SocketProxies::may_let_go())
  static bool may_receive(File& file);
  static int await_stream(const File& file);
  static bool receive(File& file, int memory);
  static void read_origins(File& file, std::string_view text, std::vector<std::shared_ptr<ParentChannel>>& channels);
};

}  // namespace unet::preload
