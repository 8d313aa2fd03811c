// mld.h - MLD (RFC 9777, and of the old version RFC 2710), IGMP for IPv6 in messages of ICMPv6, as a checked view, and how a host's are
// written; used by ipstack/.
//
//   type 1 | code 1 | checksum 2 | time 2 | 0 2 | group 16 | a query of version 2: flags, robustness 1 | interval 1 | sources 2 | sources
//
// What is to be believed comes from a link-local address, with one hop and a router alert (RFC 9777, 6.2).
#pragma once

#include "unet/wire/group_membership.h"
#include "unet/wire/ip.h"

namespace unet::ip {

constexpr uint32_t kMldOldBytes = 24;  // of a report or done of version 1

// Where reports of version 2, and dones of version 1, go.
constexpr IpAddress kAllMldRouters{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x16}};
constexpr IpAddress kAllIpv6Routers{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};

bool is_mld(uint8_t icmp_type) noexcept;
// A message that parse_icmp() has let through, in `packet`. False: it is cut, or not to be believed.
bool parse_mld(const IpView& packet, GroupMessage& message) noexcept;

// Of version 1: writes kMldOldBytes.
void emit_mld_report(std::byte* to, const IpAddress& from, const IpAddress& group) noexcept;
void emit_mld_done(std::byte* to, const IpAddress& from, const IpAddress& group) noexcept;
// Ends a report of version 2; its size.
uint32_t finish_mld(std::byte* report, GroupReportWriter& writer, const IpAddress& from) noexcept;

}  // namespace unet::ip
