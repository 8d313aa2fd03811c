// two_sides.h - two processes with a port each, for tests of real wires. They start before EAL, and always end; namespaces and interfaces
// are always removed. Used by two_sides_test.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "drivers/dpdk/dpdk_port.h"
#include "drivers/pcap/pcap_live.h"
#include "drivers/xdp/xdp_port.h"

namespace unet::test {

constexpr int kSkip = 77;
constexpr Nanoseconds kHang = 60 * kSecond;  // an event that takes longer is lost

// State shared by the running processes.
struct Shared {
  std::atomic<uint32_t> ready[2];     // how often side 0 / 1 has opened its port
  MacAddress address[2];
  std::atomic<uint64_t> progress[2];  // frames that side 0 / 1 has handled
  std::atomic<bool> stop;
  char error[2][400];
};

// The program of a side: its exit status is the result. Error text goes to Shared::error.
using Side = std::function<int(Shared&)>;

// A child process; killed with SIGKILL if it still runs when this object goes.
class Child {
 public:
  Child(Shared& shared, const Side& side);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill();
  // Returns the exit status, or -1 after a time-out or death by a signal (which `signal()` tells).
  int wait(Nanoseconds timeout);
  int signal() const { return signal_; }

 private:
  pid_t pid_;
  int status_ = -1;
  int signal_ = 0;
  bool ended_ = false;
};

// Two namespaces joined by a veth pair, or one with a bridge; names begin with unet-test-PID.
class Network {
 public:
  enum class Kind { none, veth, bridge };
  explicit Network(Kind kind);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  bool usable() const { return usable_; }
  std::string interface(int side) const;
  // Moves the calling process into side's namespace.
  bool enter(int side) const;
  // Takes side's interface down or up; the caller is in its namespace.
  bool set_up(int side, bool up) const;
  // Makes an interface that side has created part of the bridge.
  bool join_bridge(const std::string& interface) const;

 private:
  Kind kind_;
  std::string prefix_;
  bool usable_ = false;
};

std::unique_ptr<Shared, void (*)(Shared*)> make_shared_page();

// Waits until ready() or the time is over.
bool eventually(Nanoseconds timeout, const std::function<bool()>& ready);

}  // namespace unet::test
