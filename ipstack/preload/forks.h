// forks.h - what becomes of a process's sockets in a child; used by process_calls.cc.
//
// The stack stays the parent's: its memory is shared with the network interface, and one process at a time may speak for it. A child begins
// without one. What it has inherited it makes its own when it first uses it: a listener by joining its parent's claim of the port.
#pragma once

namespace unet::preload {

class Host;

// Handlers of pthread_atfork().
class Forks {
 public:
  static void before() noexcept;
  static void in_parent() noexcept;
  static void in_child() noexcept;

 private:
  static void leave_stack(Host& host);
};

}  // namespace unet::preload
