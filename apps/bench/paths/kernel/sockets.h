// sockets.h - opening connected pairs of kernel descriptors, set to their best; the kernel's paths use it.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "apps/bench/frame/environment.h"
#include "apps/bench/frame/path.h"

namespace unet::bench {

// The descriptors of one side: the same one twice, except for pipes.
struct KernelEnd {
  int in = -1;
  int out = -1;
};

// Both ends, made before the fork. Owns the descriptors.
struct KernelPair {
  std::array<KernelEnd, 2> ends;
  std::string setting;  // what was set, for the output

  KernelPair() = default;
  KernelPair(const KernelPair&) = delete;
  KernelPair& operator=(const KernelPair&) = delete;
  ~KernelPair();
  const KernelEnd& end_of(Side side) const { return ends[side == Side::a ? 0 : 1]; }
};

enum class Transport : uint8_t { pipe, unix_stream, unix_packet, unix_datagram, udp, tcp, udp_veth, tcp_veth, udp_single, tcp_single };

// Abilities of the paths of a transport; those that do not poll sleep.
Set<Ability> abilities_of(Transport transport, bool busy);

// Adds a path that blocks, and one that polls.
template <typename KernelPath>
void add_kernel_paths(Paths& paths, const std::string& name, const std::string& what, Transport transport,
                      Set<Workload> (*workloads_of)(Transport, bool)) {
  for (const bool busy : {false, true}) {
    paths.push_back(std::make_unique<KernelPath>(PathInfo{.name = name + (busy ? "-busy" : ""),
                                                          .kind = Kind::kernel,
                                                          .what = what + (busy ? ", busy polling" : ", blocking"),
                                                          .workloads = workloads_of(transport, busy),
                                                          .abilities = abilities_of(transport, busy)},
                                                 transport, busy));
  }
}

// Opens `transport` into `pair`. For *_veth, and *_single, where all offloads are off, the ends are in the Environment's two namespaces.
Status open_kernel_pair(Transport transport, bool busy, Environment& environment, KernelPair& pair);

// Buffers of 4 MiB, or the most that the kernel lets us have: of datagrams, which streams would lose otherwise.
void set_buffers(int fd);

// Whether reading from a descriptor that blocks otherwise polls instead.
void set_polling(int fd, bool polls);

}  // namespace unet::bench
