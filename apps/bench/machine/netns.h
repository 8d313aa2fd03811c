// netns.h - two network namespaces joined by veth pairs, made and removed by the program that measures or tests:
// the kernel's sockets on a wire, and the ports of AF_XDP and AF_PACKET. Needs root (CAP_SYS_ADMIN, CAP_NET_ADMIN).
//
// The namespaces are called <prefix>-<pid>-a and <prefix>-<pid>-b, so that one left behind by a killed process is
// recognised (its pid is dead) and removed by the next.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "unet/base/result.h"

namespace unet::bench {

struct VethOptions {
  uint32_t mtu = 1500;
  bool offloads = true;  // segmentation and checksum offloads, as veth has them by default; false turns all off (raw frames)
};

// One cable: an interface in each namespace, up, with addresses and each other's hardware address known (no ARP to wait for).
struct Veth {
  std::string interface_a, interface_b;  // names inside their namespaces
  std::string address_a, address_b;      // IPv4, dotted
  std::string mac_a, mac_b;
  uint32_t mtu = 0;
};

// A cable in two pieces. Both middle ends are in namespace b; their owner has to hand on the frames that arrive there.
struct VethWithMiddle {
  Veth cable;                      // its outer ends
  std::string middle_a, middle_b;  // peers of cable.interface_a and cable.interface_b
};

// Owns both namespaces; the process that created it removes them with everything inside. Forked children must not outlive
// its use of them, and leave removal to the creator (the destructor does nothing in another process).
class NamespacePair {
 public:
  // Removes leftovers of dead processes first.
  static Result<NamespacePair> create(const std::string& prefix = "unet-bench");
  NamespacePair(NamespacePair&& other) noexcept;
  NamespacePair& operator=(NamespacePair&&) = delete;
  ~NamespacePair();

  const std::string& name_a() const { return name_a_; }
  const std::string& name_b() const { return name_b_; }

  Result<Veth> add_veth(const VethOptions& options);
  // A cable in two pieces; both outer ends send single frames, not segments that are cut later.
  Result<VethWithMiddle> add_veth_with_middle();

 private:
  NamespacePair(std::string name_a, std::string name_b);
  std::string name_a_, name_b_;
  pid_t owner_;
  int veths_ = 0;
};

// While it lives the calling thread is in the named namespace: sockets and ports opened meanwhile belong there.
class NamespaceScope {
 public:
  static Result<NamespaceScope> enter(const std::string& name);
  NamespaceScope(NamespaceScope&& other) noexcept;
  NamespaceScope& operator=(NamespaceScope&&) = delete;
  ~NamespaceScope();

 private:
  explicit NamespaceScope(int previous) : previous_(previous) {}
  int previous_;
};

// Removes namespaces <prefix>-<pid>-a and -b of dead processes and returns how many. Needs no rights when there are none.
int remove_stale_namespaces(const std::string& prefix = "unet-bench");

// The pid in a namespace name, 0 when the name is not of that form.
pid_t owner_of_namespace(const std::string& name, const std::string& prefix);

// The offloads of an interface of the current namespace that are on: "tso gso gro tx-checksum", or "none".
std::string offloads_of(const std::string& interface);

}  // namespace unet::bench
