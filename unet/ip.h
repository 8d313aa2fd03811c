// ip.h - IP through the NI: the header of each packet on an endpoint's IP channel, and claims of ports; used by IP stacks.
//
//   auto channel = endpoint.open_ip();                                    // the addresses are the NI's, shared by all
//   auto claimed = endpoint.claim_ip({.protocol = 17, .port = 5353});     // ports are each endpoint's own
//   send:     IpMessageHeader | IP header | UDP or TCP header | payload   on *channel
//   receive:  the same
//
// A message carries one whole IP packet of either version, never a fragment. Sent packets have no IPv4 options or IPv6 extension headers.
// The NI acts as the host: it handles ARP, neighbour discovery, echo, fragments, path MTUs, and packets that no endpoint claims.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "unet/limits.h"
#include "unet/wire/address.h"

namespace unet {

struct IpMessageFlags {
  static constexpr uint16_t kFillChecksum = 1;  // sending: the NI fills in the TCP or UDP checksum (segment_size implies it)
  static constexpr uint16_t kChecked = 1;       // received: the checksum is right, or no wire was crossed
  static constexpr uint16_t kNoLoop = 2;        // sending to a multicast group: members at this NI get no copy
  static constexpr uint16_t kSameNi = 2;        // received: from an endpoint of this NI
};

// The header of each message on an IP channel, in host byte order.
struct IpMessageHeader {
  uint16_t flags = 0;         // IpMessageFlags
  uint16_t segment_size = 0;  // sending: payload bytes of each packet to cut (0: do not cut); an endpoint of the same NI gets it uncut;
                              // received: payload bytes of each packet that was combined (0: it is one packet)
  uint32_t reserved = 0;      // 0
};
static_assert(sizeof(IpMessageHeader) == 8 && std::is_trivially_copyable_v<IpMessageHeader>);

static_assert(kIpMessageMax == sizeof(IpMessageHeader) + 40 + 65535);  // the largest IPv6 packet, which is longer than the largest IPv4 one

// Whether a member of a share takes new flows. Members with `yes` take them; without any, those with `if_no_other_does`; else all.
enum class AcceptsNewFlows : uint8_t { no, if_no_other_does, yes };

// A claim of the packets that an endpoint wants to receive. It also gives the right to send from the claimed ports. A packet goes to the
// most specific claim that it fits. A claim with its remote address and port comes before one with any; then one with its local address
// before one with all.
//
// For UDP, `local` may be a multicast group. The NI is a member while any claim names it. All claims of the group and port receive its
// packets, of any user. Such a claim gives no right to send, and does not occupy the port.
//
// A port may be shared. Claims of one user with the same group that differ only in their owner form a share. A packet goes to one member
// that takes new flows, chosen by a hash of both ends. Requests for a channel to the port go to the members in turn. A TCP connection stays
// with the member that has sent on it. All members may send, but not on a TCP connection of another member.
struct IpClaim {
  uint8_t protocol = 0;        // 6: TCP, 17: UDP. Includes ICMP errors about sent packets. Errors with the NI's own source address report a
                               // packet that is too long, or a SYN between ends with an unfinished connection
  ip::IpAddress local{};       // unspecified: all addresses of the NI, of both families
  AcceptsNewFlows accepts_new_flows = AcceptsNewFlows::yes;  // only for a share (set_ip_claim())
  uint16_t port = 0;           // 0: the NI chooses `ports` consecutive free ones, from 49152 on or else from 32768 on
  uint16_t ports = 1;          // at most kIpPortsPerClaimMax
  ip::IpAddress remote{};      // unspecified: any
  uint16_t remote_port = 0;    // 0: any
  uint64_t group = 0;          // 0: not shared; kIpReusePort; else a token that the program passes to other members, such as a child
  uint8_t reuses = 0;          // 1, with a token: joins another token's share, if all members of both have this and take no new flows
};
static_assert(std::is_trivially_copyable_v<IpClaim> && sizeof(IpClaim) == 56);

constexpr uint64_t kIpReusePort = 1;  // the group of SO_REUSEPORT, per user

struct IpClaimed {
  uint32_t claim = 0;          // for release_ip()
  uint16_t port = 0;           // the first port
  bool plenty = false;         // three quarters are free, of the ports that the NI chooses and of the user's quotas
};

// The NI's IP configuration at one moment.
struct IpConfiguration {
  struct Address {
    ip::IpAddress address{};
    uint8_t prefix = 0;
    bool tentative = false;    // not usable yet: the NI is checking whether another host has it
    uint32_t port = 0;
  };
  struct Interface {
    uint32_t port = 0;
    uint32_t mtu = 0;          // 0: the interface under the port is gone or down
    ip::IpAddress gateway4{}, gateway6{};  // unspecified: none
  };
  struct Route {
    ip::IpAddress network{};
    uint8_t prefix = 0;
    uint32_t port = 0;
    ip::IpAddress gateway{};
  };
  std::vector<Address> addresses;
  std::vector<Interface> interfaces;
  std::vector<Route> routes;

  // The longest prefix of this port's routes to `to`, which is in none of the port's networks; 0: only a gateway; -1: no route.
  int leads_to(const Interface& from, const ip::IpAddress& to) const {
    int longest = (to.is_ipv4() ? from.gateway4 : from.gateway6).is_unspecified() ? -1 : 0;
    for (const Route& each : routes) {
      if (each.port == from.port && ip::same_network(to, each.network, each.prefix)) longest = std::max<int>(longest, each.prefix);
    }
    return longest;
  }
};

}  // namespace unet
