// neighbour_discovery.h - the messages by which IPv6 hosts and routers of a link find each other (RFC 4861), as checked views, and how
// those of a host are written; used by ipstack/.
//
//   ICMPv6 type 1 | code 1 | checksum 2 | by type: flags 4, target 16 ... | options: type 1, length / 8 1, ...
//
// What a message must be like to be believed (RFC 4861, 6.1, 7.1, 8.1; RFC 6980) is checked here: hop limit 255, so that it comes from this
// link, never cut, code 0, lengths, addresses. Options that are not known are skipped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "unet/wire/ethernet.h"
#include "unet/wire/icmp.h"

namespace unet::ip {

// By their types.
enum class DiscoveryKind : uint8_t {
  router_solicitation = 133,
  router_advertisement = 134,
  neighbour_solicitation = 135,
  neighbour_advertisement = 136,
  redirect = 137
};

constexpr uint8_t kDiscoveryHops = 255;
constexpr uint32_t kPrefixesMax = 8;          // of one advertisement; more are skipped
constexpr uint32_t kDiscoveryOptionsMax = 64;  // likewise refused: a host looks at so many
constexpr uint32_t kDiscoveryBytesMax = 32;   // of what a host emits

// RFC 4861, 4.6.2.
struct Prefix {
  IpAddress address{};
  uint8_t bits = 0;
  bool on_link = false, autonomous = false;
  uint32_t valid_s = 0, preferred_s = 0;  // seconds; ~0: for ever
};

struct Discovery {
  DiscoveryKind kind{};
  IpAddress target{};                      // neighbour messages and redirects
  std::optional<MacAddress> source_mac{};  // options: whose message it is
  std::optional<MacAddress> target_mac{};  // whose address the target is
  bool router = false, solicited = false, override_entry = false;  // of a neighbour advertisement
  // Of a redirect: for whom the target is the next hop.
  IpAddress destination{};
  // Of a router advertisement. 0: it does not say.
  uint8_t hop_limit = 0;
  uint16_t lifetime_s = 0;                 // as a default router; 0: none
  uint32_t reachable_ms = 0, retransmit_ms = 0;
  uint32_t mtu = 0;
  uint32_t prefix_count = 0;
  std::array<Prefix, kPrefixesMax> prefixes{};
};

// A message that parse_icmp() has let through, in `packet`. False: it is none of these, or one that is not to be believed.
bool parse_discovery(const IpView& packet, Discovery& discovery) noexcept;

// Each writes a message with its checksum, and returns its size, at most kDiscoveryBytesMax. Packets with them have a hop limit of 255.
// A question for `target`; from the unspecified address it asks whether anybody has it (RFC 4862, 5.4), and does not say our station.
uint32_t emit_neighbour_solicitation(std::byte* to, const IpAddress& from, const IpAddress& peer, const IpAddress& target,
                                     const MacAddress& own) noexcept;
uint32_t emit_neighbour_advertisement(std::byte* to, const IpAddress& from, const IpAddress& peer, const IpAddress& target,
                                      const MacAddress& own, bool solicited, bool override_entry) noexcept;
uint32_t emit_router_solicitation(std::byte* to, const IpAddress& from, const IpAddress& peer, const MacAddress& own) noexcept;

}  // namespace unet::ip
