// forks.h - a child of fork() has its parent's sockets, but not the stack; used by process_calls.cc and process_end.cc.
//
// The stack stays the parent's: its memory is shared with the network interface, and only one process at a time may use it. A child begins
// without a stack, and adopts an inherited socket when it first uses it (adoption.h). Until then its only trace is File::inherited.
//
// A channel (share_channel.h) leads from the child to its parent, and one to each process that the parent has a channel to. Connections
// that still arrive at the parent's listener go to the child when it accepts (accept_transfer.cc).
#pragma once

#include <vector>

namespace unet::preload {

class Forks {
 public:
  // Run before and after fork() (pthread_atfork()): they take the lock and release it.
  static void before() noexcept;
  static void in_parent() noexcept;
  static void in_child() noexcept;

  // ---- for process_end.cc, which forks to leave the stack to an orphan process. Each releases the lock.

  // This process has the stack, and the other one is its child.
  static void go_on_as_parent();
  // Another process has the stack.
  static void go_on_as_child();
  // Appends the descriptors that the fork under way has made.
  static void append(std::vector<int>& all);
};

}  // namespace unet::preload
