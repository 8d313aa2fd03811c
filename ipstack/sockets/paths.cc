// paths.cc - which addresses a stack has, which of them it speaks from, and how messages to the network begin.
#include <algorithm>
#include <climits>
#include <cstring>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {

bool Stack::is_own(const ip::IpAddress& address) const {
  const auto& addresses = network_.configuration().addresses;
  return std::any_of(addresses.begin(), addresses.end(),
                     [&](const IpConfiguration::Address& each) { return !each.tentative && each.address == address; });
}

// The interface under the link of an address of ours is gone, or down.
bool Stack::is_cut_off(const ip::IpAddress& from) const {
  const IpConfiguration& configuration = network_.configuration();
  const auto away = [](const IpConfiguration::Interface& each) { return each.mtu == 0; };
  if (std::none_of(configuration.interfaces.begin(), configuration.interfaces.end(), away)) return false;
  const auto at = std::find_if(configuration.addresses.begin(), configuration.addresses.end(),
                               [&](const IpConfiguration::Address& each) { return each.address == from; });
  if (at == configuration.addresses.end()) return false;
  return std::any_of(configuration.interfaces.begin(), configuration.interfaces.end(),
                     [&](const IpConfiguration::Interface& each) { return each.port == at->port && away(each); });
}

// RFC 6724 as far as a host with one or a few links needs it: the destination itself, an address of the link that leads there, which the
// longest prefix says, and of its network there.
bool Stack::source_for(const ip::IpAddress& to, ip::IpAddress& from) const {
  const IpConfiguration& configuration = network_.configuration();
  const auto longest_route = [&](uint32_t port) {
    int longest = -1;
    for (const IpConfiguration::Interface& each : configuration.interfaces) {
      if (each.port == port) longest = std::max(longest, configuration.leads_to(each, to));
    }
    return longest;
  };
  // By what the way there is found: the longest prefix, and of two the link's own network; then a gateway.
  constexpr int kGateway = 3, kNetworks = 4, kItself = INT_MAX;
  const bool near = to.is_link_local() || to.is_multicast() || to.is_limited_broadcast();
  int best = 0;
  for (const IpConfiguration::Address& each : configuration.addresses) {
    if (each.tentative || each.address.is_ipv4() != to.is_ipv4() || (each.address.is_loopback() && !to.is_loopback())) continue;
    int rank = 0;
    const int route = near || each.address.is_link_local() ? -1 : longest_route(each.port);
    if (each.address == to) rank = kItself;
    else if (same_network(each.address, to, each.prefix)) rank = kNetworks + 2 * std::max<int>(each.prefix, route) + (route <= each.prefix);
    else if (near) rank = each.address.is_link_local() == to.is_link_local() ? 2 : 1;
    else if (route > 0) rank = kNetworks + 2 * route;
    else if (route == 0) rank = kGateway;
    if (rank <= best) continue;
    best = rank;
    from = each.address;
  }
  return best != 0;
}

uint32_t Stack::mtu_from(const ip::IpAddress& from) const {
  const IpConfiguration& configuration = network_.configuration();
  for (const IpConfiguration::Address& each : configuration.addresses) {
    if (each.address != from) continue;
    for (const IpConfiguration::Interface& link : configuration.interfaces) {
      if (link.port == each.port && link.mtu != 0) return link.mtu;
    }
  }
  return ip::kIpv6MtuMin;
}

// Writes what stands before the transport's header, and says where that goes. `length`: of the packet's payload.
std::byte* Stack::begin_message(MutableBytes room, const ip::IpFields& fields, uint32_t length, uint16_t segment,
                                uint16_t flags) noexcept {
  const IpMessageHeader header{.flags = static_cast<uint16_t>(IpMessageFlags::kFillChecksum | flags), .segment_size = segment};
  std::memcpy(room.data(), &header, sizeof header);
  return room.data() + sizeof header + emit_ip_header(room.data() + sizeof header, fields, length);
}

}  // namespace unet::sockets
