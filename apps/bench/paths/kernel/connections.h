// connections.h - the workloads `connections` and `many` of the kernel's TCP on loopback.
#pragma once

#include <netinet/in.h>

#include <array>
#include <vector>

#include "apps/bench/workloads/connections.h"
#include "unet/mapping.h"

namespace unet::bench {

// Listening sockets, opened before the fork: side B accepts, side A connects to their addresses.
class KernelConnections {
 public:
  KernelConnections() = default;
  KernelConnections(const KernelConnections&) = delete;
  KernelConnections& operator=(const KernelConnections&) = delete;
  ~KernelConnections();

  // `busy`: calls are polled. Where a process may have fewer files than there are to be connections, others hold them.
  Status open(bool busy);
  Outcome run(const Slice& slice, RunContext& context);

 private:
  struct Listener {
    Descriptor socket;
    sockaddr_in address{};
  };
  bool busy_ = false;
  std::array<Listener, kListeners> listeners_;
  std::vector<int> slots_;
  std::vector<int> holders_;  // processes that have those connections for which this one has no numbers left
  HeldMemory held_;

  struct Ends;
  bool hand_over();
  void end_holders();
};

}  // namespace unet::bench
