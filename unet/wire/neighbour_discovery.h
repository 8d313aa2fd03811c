// neighbour_discovery.h - neighbour discovery of IPv6 (RFC 4861): parse into checked views, and emit of a host's messages.
//
//   ICMPv6 type 1 | code 1 | checksum 2 | by type: flags 4, target 16 ... | options: type 1, length / 8 1, ...
//
// The parser validates messages (RFC 4861, 6.1, 7.1, 8.1; RFC 6980): hop limit 255, which proves that they come from this link, no
// fragmentation, code 0, lengths, addresses. Unknown options are skipped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "unet/wire/ethernet.h"
#include "unet/wire/icmp.h"

namespace unet::ip {

// ICMPv6 types.
enum class DiscoveryKind : uint8_t {
  router_solicitation = 133,
  router_advertisement = 134,
  neighbour_solicitation = 135,
  neighbour_advertisement = 136,
  redirect = 137
};

constexpr uint8_t kDiscoveryHops = 255;
constexpr uint32_t kPrefixesMax = 8;          // per advertisement; more are skipped
constexpr uint32_t kDiscoveryOptionsMax = 64;  // per message; more are refused
constexpr uint32_t kDiscoveryBytesMax = 32;   // largest message that a host emits

// A prefix information option (RFC 4861, 4.6.2).
struct Prefix {
  IpAddress address{};
  uint8_t bits = 0;
  bool on_link = false, autonomous = false;
  uint32_t valid_s = 0, preferred_s = 0;  // seconds; ~0: infinite
};

struct Discovery {
  DiscoveryKind kind{};
  IpAddress target{};                      // neighbour messages and redirects
  std::optional<MacAddress> source_mac{};  // source link-layer address option
  std::optional<MacAddress> target_mac{};  // target link-layer address option
  bool router = false, solicited = false, override_entry = false;  // of a neighbour advertisement
  // Redirect: the destination for which the target is the next hop.
  IpAddress destination{};
  // Router advertisement. 0: unspecified by the router.
  uint8_t hop_limit = 0;
  uint16_t lifetime_s = 0;                 // as a default router; 0: it is none
  uint32_t reachable_ms = 0, retransmit_ms = 0;
  uint32_t mtu = 0;
  uint32_t prefix_count = 0;
  std::array<Prefix, kPrefixesMax> prefixes{};
};

// Parses a message that parse_icmp() has accepted. False: another kind, or invalid.
bool parse_discovery(const IpView& packet, Discovery& discovery) noexcept;

// Each writes a message with its checksum and returns its size, at most kDiscoveryBytesMax. Send it with a hop limit of 255.
// Asks for `target`. From the unspecified address it is a probe for a duplicate (RFC 4862, 5.4) and omits our station.
uint32_t emit_neighbour_solicitation(std::byte* to, const IpAddress& from, const IpAddress& peer, const IpAddress& target,
                                     const MacAddress& own) noexcept;
uint32_t emit_neighbour_advertisement(std::byte* to, const IpAddress& from, const IpAddress& peer, const IpAddress& target,
                                      const MacAddress& own, bool solicited, bool override_entry) noexcept;
uint32_t emit_router_solicitation(std::byte* to, const IpAddress& from, const IpAddress& peer, const MacAddress& own) noexcept;

}  // namespace unet::ip
