// ip.h - IP through the NI: what stands in front of each packet on an endpoint's IP channel, and claims of ports; used by IP stacks.
//
//   auto channel = endpoint.open_ip();                                    // the addresses are the NI's, shared by all
//   auto claimed = endpoint.claim_ip({.protocol = 17, .port = 5353});     // ports are each endpoint's own
//   send:     IpMessageHeader | IP header | UDP or TCP header | payload   on *channel
//   receive:  the same
//
// A message carries one IP packet, of either version, whole and never a fragment; without options of IPv4 or extension headers of IPv6 when
// it is sent. The NI answers for the host: ARP, neighbour discovery, echo, fragments, path MTUs, and for what nobody claims.
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
  static constexpr uint16_t kChecked = 1;       // received: the checksum is right, or there was no wire between
  static constexpr uint16_t kNoLoop = 2;        // sending, to a group: endpoints of this NI that are in it get none
  static constexpr uint16_t kSameNi = 2;        // received: from an endpoint of this NI
};

// In host order, both ways.
struct IpMessageHeader {
  uint16_t flags = 0;         // IpMessageFlags
  uint16_t segment_size = 0;  // sending: payload bytes of each packet it is cut into (0: as it is); an endpoint of the same NI gets it
                              // uncut; received: the same of the packets of which it was made (0: it was one)
  uint32_t reserved = 0;      // 0
};
static_assert(sizeof(IpMessageHeader) == 8 && std::is_trivially_copyable_v<IpMessageHeader>);

static_assert(kIpMessageMax == sizeof(IpMessageHeader) + 40 + 65535);  // the largest packet of IPv6, which is longer than one of IPv4

// Whether a member of a share takes flows that it has not: those who say yes, or if nobody does those who do so then, or else all.
enum class TakesNew : uint8_t { no, if_nobody_does, yes };

// What an endpoint wants to receive, and may then send from. A packet goes to the most specific claim that it fits: one with that remote
// address and port before one with any, then one with that local address before one with all.
//
// Of UDP, `local` may be a group (multicast): the NI is in it while anybody claims so. What comes to the group and that port goes to all
// who claim both, of whatever users; such a claim gives no right to send, and takes the port from nobody.
//
// A port may be shared: claims of one user with the same group, alike but for their owner, are one share. What comes goes to one of those
// who take new flows, by a hash of both ends, or in turn where a channel to who has the port is asked for; of TCP to whoever has sent on
// that connection before. Each may send, but of TCP not on another's connection.
struct IpClaim {
  uint8_t protocol = 0;        // 6: TCP, 17: UDP; with the ICMP errors about what was sent from here; from its own
                               // address: from the NI, of what is too long, or a SYN between ends whose last connection is not over
  ip::IpAddress local{};       // unspecified: all of the NI's, of both families
  TakesNew takes_new = TakesNew::yes;  // of a share (set_ip_claim())
  uint16_t port = 0;           // 0: the NI chooses `ports` free ones in a row, from 49152 on or else from 32768 on
  uint16_t ports = 1;          // at most kIpPortsPerClaimMax
  ip::IpAddress remote{};      // unspecified: anybody
  uint16_t remote_port = 0;    // 0: any
  uint64_t group = 0;          // 0: nobody else may have it; kIpReusePort; else a token that whoever may join was told, as a child
  uint8_t reuses = 0;          // 1, with a token: joins another token's share, if all of both say so and none takes new flows
};
static_assert(std::is_trivially_copyable_v<IpClaim> && sizeof(IpClaim) == 56);

constexpr uint64_t kIpReusePort = 1;  // the group of all of one user's who ask for SO_REUSEPORT

struct IpClaimed {
  uint32_t claim = 0;          // for release_ip()
  uint16_t port = 0;           // the first
  bool plenty = false;         // three quarters are free of the ports that the NI chooses and of the user's quotas
};

// What the NI has for IP at the moment.
struct IpConfiguration {
  struct Address {
    ip::IpAddress address{};
    uint8_t prefix = 0;
    bool tentative = false;    // nobody has it yet: the NI asks whether another host has
    uint32_t port = 0;
  };
  struct Interface {
    uint32_t port = 0;
    uint32_t mtu = 0;          // 0: the interface under the port is gone, or down
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

  // The longest prefix of a route by which the port leads to where none of its networks is; 0: it has a gateway; -1: it does not.
  int leads_to(const Interface& from, const ip::IpAddress& to) const {
    int longest = (to.is_ipv4() ? from.gateway4 : from.gateway6).is_unspecified() ? -1 : 0;
    for (const Route& each : routes) {
      if (each.port == from.port && ip::same_network(to, each.network, each.prefix)) longest = std::max<int>(longest, each.prefix);
    }
    return longest;
  }
};

}  // namespace unet
