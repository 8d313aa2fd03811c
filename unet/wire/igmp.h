// igmp.h - IGMP (RFC 9776, and of old versions RFC 2236 and 1112) as a checked view, and how a host's messages are written; used by
// ipstack/.
//
//   type 1 | time 1 | checksum 2 | group 4 | a query of version 3: flags, robustness 1 | interval 1 | sources 2 | sources, 4 each
//
// What routers say comes from this link: with one hop and, but for version 1, a router alert (RFC 9776, 4; RFC 2236, 10).
#pragma once

#include "unet/wire/group_membership.h"
#include "unet/wire/ip.h"

namespace unet::ip {

constexpr uint32_t kIgmpOldBytes = 8;  // of a report or leave of version 1 or 2

// Where reports of version 3, and leaves of version 2, go (RFC 9776, 4.2.14; RFC 2236, 3).
const IpAddress& all_igmp_routers() noexcept;
const IpAddress& all_ipv4_routers() noexcept;

// The payload of a packet of IGMP. False: it is cut, damaged, or not to be believed.
bool parse_igmp(const IpView& packet, GroupMessage& message) noexcept;

// A report of version 1 or 2, or a leave of version 2: writes kIgmpOldBytes.
void emit_igmp_report(std::byte* to, uint8_t version, const IpAddress& group) noexcept;
void emit_igmp_leave(std::byte* to, const IpAddress& group) noexcept;
// Ends a report of version 3; its size.
uint32_t finish_igmp(std::byte* report, GroupReportWriter& writer) noexcept;

}  // namespace unet::ip
