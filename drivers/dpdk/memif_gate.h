// memif_gate.h - keeps the engine's thread out of a memif port while DPDK changes its connection; used by dpdk_port.
//
// DPDK's memif handles its control socket in EAL's interrupt thread: when a peer connects or dies, that thread maps or
// unmaps the shared rings, with no regard for a burst that another thread is in the middle of. Nothing in DPDK's
// interface announces it in time, except its log: every message on the control socket is logged before it is acted
// upon. So the log is where we stop it:
//
//   interrupt thread                                     engine's thread, each burst
//   logs a line: closed_ |= kGate for every memif port   busy_ = 1
//   membarrier(): each store above is seen everywhere     if (closed_) stay out
//   waits until no port has busy_ == 1                    rx or tx burst
//   acts on the message                                   busy_ = 0
//   next turn of its loop: closed_ &= ~kGate
//
// The engine pays two plain stores and a load per burst; the fence is on the other side. While closed, a port
// receives nothing and takes nothing.
//
// What the engine's side has to change about a connection (stop, start, close) is handed to the interrupt thread as a task:
// the two cannot meet then, and the engine never waits for a peer.
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

  // Before DPDK opens a memif: a server may be connected to as soon as it listens.
  static Status prepare();
  static void add(DpdkPort& port);
  static void remove(DpdkPort& port) noexcept;

  // Runs a task in the interrupt thread, soon; then the port's task_done_ is set (release). One task per port at a time.
  using Task = void (*)(DpdkPort&);
  static void post(DpdkPort& port, Task task) noexcept;
  // Waits for it. False if the interrupt thread is stuck (in a system call that waits for a peer).
  static bool wait(DpdkPort& port, Nanoseconds timeout) noexcept;

  // In the interrupt thread, when a server is closed: the last that listens at its socket takes that away.
  static void stop_listening(DpdkPort& port) noexcept;

  // How many messages have come over control sockets.
  static uint64_t messages() noexcept;

 private:
  static void on_log(const char* line, size_t length);
  static void on_turn(void*);
  static bool close_orphans();
};

// The control socket of a memif client, which DPDK opens and closes in its interrupt thread and tells nobody. Its log says only that a
// memif with some id and role has ended, and two clients of one process may have the same.
class MemifControlSocket {
 public:
  // Runs `connect`, in the interrupt thread, and finds the socket if that opened one to `socket`, which is as in the device string.
  template <typename Connect>
  int find(const std::string& socket, Connect connect) noexcept {
    const int expected = lowest_free();
    const int result = connect();
    adopt(result == 0 ? expected : -1, socket);
    return result;
  }
  // From any thread, after find(). Not found: nothing is known of it, not even that it is gone.
  bool is_found() const noexcept { return descriptor_ >= 0; }
  bool is_gone() const noexcept;

 private:
  static int lowest_free() noexcept;
  void adopt(int descriptor, const std::string& socket) noexcept;

  int descriptor_ = -1;
  uint64_t inode_ = 0;
};

// The descriptors of EAL's packet memory, which a zero-copy memif client passes to its server. DPDK closes EAL's own
// descriptor each time it has done so, and would pass on whatever file has got its number since. These put the
// memory back under its number, from copies of ours.
class MemoryDescriptors {
 public:
  // Before the first connection.
  static void save();
  // Whenever DPDK may have closed them. False if another file has a number already: then no more zero-copy connections.
  static bool restore() noexcept;
};

// DPDK never closes the listening socket of a memif server, and its interrupt thread must not see the descriptor go
// away. These find it, and take its name and its connections away while the number stays taken.
class MemifListener {
 public:
  MemifListener() = default;
  // After the port was probed: `socket` as in the device string. Where root listens in a directory of another user, the file becomes
  // that user's, who could replace it anyway.
  void adopt(const std::string& socket);
  // What it listens at, maybe with other ports; -1 before and after.
  int descriptor() const noexcept { return descriptor_; }
  // In the interrupt thread, when the port does not listen any more.
  void leave() noexcept { descriptor_ = -1; }
  // As leave(), of the last port: nobody can connect any more, the name is free again.
  void retire() noexcept;

  // Whether another process has the name. To be asked before DPDK is: it keeps half a port, with the port's name, when it cannot listen.
  static bool is_taken(const std::string& socket) noexcept;
  // Removes a socket file that a killed server has left behind.
  static void remove_stale_file(const std::string& socket) noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace unet::drivers
