// group_calls.cc - the options of setsockopt() that are about groups.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ipstack/sockets/calls.h"
#include "ipstack/sockets/sockaddr.h"

namespace unet::sockets {

bool Sockets::is_own(const ip::IpAddress& address) const noexcept {
  const auto& all = network_->configuration().addresses;
  return std::any_of(all.begin(), all.end(), [&](const auto& each) { return each.address == address; });
}

// Whether a link has the number. 0: any link; 1: accepted from older programs.
bool Sockets::is_link(uint32_t number) const noexcept {
  const auto& all = network_->configuration().interfaces;
  return number <= 1 || std::any_of(all.begin(), all.end(), [&](const auto& each) { return kLinkNumber + each.port == number; });
}

// Sets an option about groups; returns nothing if the option is another. A socket joins a group on all links, whichever link is named.
std::optional<int> Sockets::set_group(int s, int level, int name, const void* value, socklen_t length) {
  const auto read = [&](auto& into) {
    if (length < sizeof into) return false;
    std::memcpy(&into, value, sizeof into);
    return true;
  };
  const auto change = [&](bool joins, const ip::IpAddress& group, uint32_t interface) {
    if (!is_link(interface)) return -ENODEV;
    stack_->set_time(clock_.now());
    return joins ? stack_->join(s, group) : stack_->leave(s, group);
  };
  if (level == IPPROTO_IP && (name == IP_ADD_MEMBERSHIP || name == IP_DROP_MEMBERSHIP)) {
    ip_mreq old;
    if (!read(old)) return -EINVAL;
    ip_mreqn now{.imr_multiaddr = old.imr_multiaddr, .imr_address = old.imr_interface, .imr_ifindex = 0};
    if (length >= sizeof now) read(now);
    if (now.imr_ifindex == 0 && now.imr_address.s_addr != 0 && !is_own(ip::ipv4_address(&now.imr_address))) return -ENODEV;
    return change(name == IP_ADD_MEMBERSHIP, ip::ipv4_address(&now.imr_multiaddr), static_cast<uint32_t>(now.imr_ifindex));
  }
  if (level == IPPROTO_IPV6 && (name == IPV6_ADD_MEMBERSHIP || name == IPV6_DROP_MEMBERSHIP)) {
    ipv6_mreq wanted;
    if (!read(wanted)) return -EINVAL;
    return change(name == IPV6_ADD_MEMBERSHIP, ip::ipv6_address(&wanted.ipv6mr_multiaddr), wanted.ipv6mr_interface);
  }
  if ((level == IPPROTO_IP || level == IPPROTO_IPV6) && (name == MCAST_JOIN_GROUP || name == MCAST_LEAVE_GROUP)) {
    group_req wanted;
    if (!read(wanted)) return -EINVAL;
    Address group;
    const auto* const address = reinterpret_cast<const sockaddr*>(&wanted.gr_group);
    if (const int wrong = read_sockaddr(address, sizeof wanted.gr_group, level == IPPROTO_IPV6, true, group); wrong != 0) return -wrong;
    return change(name == MCAST_JOIN_GROUP, group.host, wanted.gr_interface);
  }
  if (level == IPPROTO_IP && name == IP_MULTICAST_IF) {
    in_addr address{};
    ip_mreqn whole{};
    ip_mreq half{};
    if (!read(address)) return -EINVAL;
    if (read(whole)) address = whole.imr_address;
    else if (read(half)) address = half.imr_interface;
    return stack_->set_group_source(s, address.s_addr == 0 ? ip::IpAddress{} : ip::ipv4_address(&address));
  }
  if (level == IPPROTO_IPV6 && name == IPV6_MULTICAST_IF) {
    uint32_t interface;
    if (!read(interface)) return -EINVAL;
    return !is_link(interface) ? -ENODEV : stack_->is_datagram(s) ? 0 : -ENOPROTOOPT;
  }
  return std::nullopt;
}

}  // namespace unet::sockets
