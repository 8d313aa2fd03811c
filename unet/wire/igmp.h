// igmp.h - IGMP (RFC 9776, and the old versions RFC 2236 and 1112): parse into a checked view, and emit of a host's messages; used by
// ipstack/.
//
//   type 1 | time 1 | checksum 2 | group 4 | a query of version 3: flags, robustness 1 | interval 1 | sources 2 | sources, 4 each
//
// A router's message comes from this link: it has TTL 1 and, except in version 1, a router alert (RFC 9776, 4; RFC 2236, 10).
#pragma once

#include "unet/wire/group_membership.h"
#include "unet/wire/ip.h"

namespace unet::ip {

constexpr uint32_t kIgmpOldBytes = 8;  // a report or leave of version 1 or 2

// Destinations of version 3 reports, and of version 2 leaves (RFC 9776, 4.2.14; RFC 2236, 3).
const IpAddress& all_igmp_routers() noexcept;
const IpAddress& all_ipv4_routers() noexcept;

// Parses the payload of an IGMP packet. False: truncated, damaged or not credible.
bool parse_igmp(const IpView& packet, GroupMessage& message) noexcept;

// Writes kIgmpOldBytes: a report of version 1 or 2, or a leave of version 2.
void emit_igmp_report(std::byte* to, uint8_t version, const IpAddress& group) noexcept;
void emit_igmp_leave(std::byte* to, const IpAddress& group) noexcept;
// Completes a report of version 3; returns its size.
uint32_t finish_igmp(std::byte* report, GroupReportWriter& writer) noexcept;

}  // namespace unet::ip
