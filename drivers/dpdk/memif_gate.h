// memif_gate.h - keeps the engine's thread out of a memif port while DPDK changes its connection; used by dpdk_port.
//
// DPDK's memif handles its control socket in EAL's interrupt thread. When a peer connects or dies, that thread maps or unmaps the shared
// rings, even during a burst of another thread. DPDK's interface announces this nowhere except in the log: every message on the control
// socket is logged before DPDK acts on it. Our log function therefore stops the thread:
//
//   interrupt thread                                     engine's thread, each burst
//   logs a line: closed_ |= kGate for every memif port   busy_ = 1
//   membarrier(): each store above is seen everywhere     if (closed_) stay out
//   waits until no port has busy_ == 1                    rx or tx burst
//   acts on the message                                   busy_ = 0
//   next turn of its loop: closed_ &= ~kGate
//
// The engine pays two plain stores and a load per burst; the fence is on the other side. A closed port receives nothing and takes nothing.
//
// The engine hands changes of a connection (stop, start, close) to the interrupt thread as tasks. The two threads cannot collide then, and
// the engine never waits for a peer.
#pragma once

#include <cstdint>
#include <string>

#include "unet/base/result.h"
#include "unet/base/time.h"

namespace unet::drivers {

class DpdkPort;

class MemifGate {
 public:
  static constexpr uint32_t kStopped = 1;  // bits of DpdkPort::closed_
  static constexpr uint32_t kGate = 2;

  // Call this before DPDK opens a memif: clients may connect as soon as a server listens.
  static Status prepare();
  static void add(DpdkPort& port);
  static void remove(DpdkPort& port) noexcept;

  // Runs a task in the interrupt thread, soon, and then sets the port's task_done (release). One task per port at a time.
  using Task = void (*)(DpdkPort&);
  static void post(DpdkPort& port, Task task) noexcept;
  // Waits for the port's task. Returns false if the interrupt thread is stuck in a system call that waits for a peer.
  static bool wait(DpdkPort& port, Nanoseconds timeout) noexcept;

  // Call this in the interrupt thread when a server is closed. The last port that listens at a socket retires it.
  static void stop_listening(DpdkPort& port) noexcept;

 private:
  static void on_log(const char* line, size_t length);
  static void on_turn(void*);
};

// The descriptors of EAL's packet memory, which a zero-copy memif client passes to its server. DPDK closes EAL's own descriptor after
// passing it, and would next pass whatever file has its number by then. These functions put the memory back under its number, from copies.
class MemoryDescriptors {
 public:
  // Call this before the first connection.
  static void save();
  // Call this whenever DPDK may have closed them. False if another file has a number already: then no more zero-copy connections are
  // possible.
  static bool restore() noexcept;
};

// DPDK never closes the listening socket of a memif server, and its interrupt thread must not see the descriptor disappear. This class
// finds the socket, and removes its name and its connections while the descriptor's number stays taken.
class MemifListener {
 public:
  MemifListener() = default;
  // Call this after the port was probed; `socket` is the name in the device string. Where root listens in another user's directory, that
  // user becomes the file's owner: this user could replace the file anyway.
  void adopt(const std::string& socket);
  // The listening descriptor, perhaps shared with other ports; -1 if there is none.
  int descriptor() const noexcept { return descriptor_; }
  // Call this in the interrupt thread when the port stops listening.
  void leave() noexcept { descriptor_ = -1; }
  // Call this for the last port: no client can connect any more, and the name is free again.
  void retire() noexcept;

  // Whether another process has the name. Ask before DPDK opens the port: if DPDK cannot listen, it leaves half a port under the port's
  // name.
  static bool is_taken(const std::string& socket) noexcept;
  // Removes a socket file that a killed server has left behind.
  static void remove_stale_file(const std::string& socket) noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace unet::drivers
