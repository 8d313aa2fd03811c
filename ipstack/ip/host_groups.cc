// host_groups.cc - the multicast groups of a host, and IGMP and MLD on its link.
#include <algorithm>

#include "ipstack/ip/host.h"
#include "unet/wire/igmp.h"
#include "unet/wire/mld.h"

namespace unet::ip {
namespace {

constexpr uint32_t kRouterAlert4Bytes = 4, kRouterAlert6Bytes = 8;
constexpr uint8_t kInternetControl = 0xC0;  // precedence of IGMP (RFC 9776, 4)

}  // namespace

bool Host::listen(const IpAddress& group, FilterMode mode, std::span<const IpAddress> sources, Nanoseconds now) noexcept {
  if (!group.is_ipv4() && !options_.ipv6) return false;
  return (group.is_ipv4() ? groups4_ : groups6_).listen(group, mode, sources, now);
}

bool Host::is_membership(const IpView& packet) const noexcept {
  if (packet.ipv4) return packet.protocol == Protocol::kIgmp;
  return packet.protocol == Protocol::kIcmp6 && !packet.payload.empty() && is_mld(std::to_integer<uint8_t>(packet.payload[0]));
}

void Host::handle_membership(const IpView& packet, Nanoseconds now) noexcept {
  GroupMessage message;
  if (!(packet.ipv4 ? parse_igmp(packet, message) : parse_mld(packet, message))) return count(HostCounter::bad_group);
  (packet.ipv4 ? groups4_ : groups6_).handle_message(message, now);
}

// RFC 4862, 5.4.2: join the solicited-node group before the first probe for an address, so that switches (MLD snooping) forward it.
void Host::hold_solicited_groups(Nanoseconds now) noexcept {
  for (OwnAddress& each : addresses_) {
    const bool ours = each.claim.state() != AddressClaim::State::conflict;
    const bool begins = each.is_assigned() || each.claim.next_event() <= now;
    if (each.address().is_ipv4() || each.holds_group == ours || (ours && !begins)) continue;
    const IpAddress group = solicited_node(each.address());
    if (ours) groups6_.hold(group, now);
    else groups6_.release(group, now);
    each.holds_group = ours;
  }
}

uint32_t Host::poll_groups(Nanoseconds now, std::byte* frame) noexcept {
  if (options_.ipv6) hold_solicited_groups(now);
  for (const bool ipv4 : {true, false}) {
    Memberships& groups = ipv4 ? groups4_ : groups6_;
    if (groups.next_event() > now) continue;
    const uint32_t header = ipv4 ? kIpv4Bytes + kRouterAlert4Bytes : kIpv6Bytes + kRouterAlert6Bytes;
    std::byte* const at = frame + kEthernetBytes + header;
    GroupReportWriter writer(MutableBytes(at, mtu_.of(ipv4) - header), ipv4);
    Memberships::Message message;
    if (!groups.poll_message(now, writer, message)) continue;
    // RFC 9776, 4.2.13, RFC 9777, 5.2.13: a host without an address sends from the unspecified one.
    const IpAddress from = source_for(ipv4 ? all_igmp_routers() : kAllMldRouters).value_or(ipv4 ? ipv4_address(0u) : kNone6);
    IpAddress to = message.group;
    uint32_t length = ipv4 ? kIgmpOldBytes : kMldOldBytes;
    switch (message.kind) {
      case Memberships::Message::Kind::report:
        to = ipv4 ? all_igmp_routers() : kAllMldRouters;
        length = ipv4 ? finish_igmp(at, writer) : finish_mld(at, writer, from);
        break;
      case Memberships::Message::Kind::old_report:
        if (ipv4) emit_igmp_report(at, message.version, message.group);
        else emit_mld_report(at, from, message.group);
        break;
      case Memberships::Message::Kind::leave:
        to = ipv4 ? all_ipv4_routers() : kAllIpv6Routers;
        if (ipv4) emit_igmp_leave(at, message.group);
        else emit_mld_done(at, from, message.group);
        break;
    }
    const IpFields fields{.from = from, .to = to, .protocol = ipv4 ? Protocol::kIgmp : Protocol::kIcmp6, .hop_limit = 1,
                          .traffic_class = ipv4 ? kInternetControl : uint8_t{0}, .router_alert = true};
    return emit_ip_frame(frame, group_station(to), fields, length);
  }
  return 0;
}

}  // namespace unet::ip
