// mld.h - MLD (RFC 9777, and the old version RFC 2710), the IGMP of IPv6 inside ICMPv6: parse into a checked view, and emit of a host's
// messages; used by ipstack/.
//
//   type 1 | code 1 | checksum 2 | time 2 | 0 2 | group 16 | a query of version 2: flags, robustness 1 | interval 1 | sources 2 | sources
//
// A valid message has a link-local source, hop limit 1 and a router alert (RFC 9777, 6.2).
#pragma once

#include "unet/wire/group_membership.h"
#include "unet/wire/ip.h"

namespace unet::ip {

constexpr uint32_t kMldOldBytes = 24;  // a report or done of version 1

// Destinations of version 2 reports, and of version 1 dones.
constexpr IpAddress kAllMldRouters{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16}};
constexpr IpAddress kAllIpv6Routers{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};

bool is_mld(uint8_t icmp_type) noexcept;
// Parses a message that parse_icmp() has accepted. False: truncated or not credible.
bool parse_mld(const IpView& packet, GroupMessage& message) noexcept;

// Version 1: writes kMldOldBytes.
void emit_mld_report(std::byte* to, const IpAddress& from, const IpAddress& group) noexcept;
void emit_mld_done(std::byte* to, const IpAddress& from, const IpAddress& group) noexcept;
// Completes a report of version 2; returns its size.
uint32_t finish_mld(std::byte* report, GroupReportWriter& writer, const IpAddress& from) noexcept;

}  // namespace unet::ip
