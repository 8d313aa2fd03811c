// host_addresses.cc - source address selection (RFC 6724), and the links of addresses.
#include "ipstack/sockets/host_addresses.h"

#include <algorithm>
#include <climits>

#include "unet/wire/ip.h"

namespace unet::sockets {

bool HostAddresses::is_own(const ip::IpAddress& address) const {
  const auto& addresses = network_.configuration().addresses;
  return std::any_of(addresses.begin(), addresses.end(),
                     [&](const IpConfiguration::Address& each) { return !each.tentative && each.address == address; });
}

// The interface under the link of an address of ours is gone, or down.
bool HostAddresses::is_cut_off(const ip::IpAddress& from) const {
  const IpConfiguration& configuration = network_.configuration();
  const auto away = [](const IpConfiguration::Interface& each) { return each.mtu == 0; };
  if (std::none_of(configuration.interfaces.begin(), configuration.interfaces.end(), away)) return false;
  const auto at = std::find_if(configuration.addresses.begin(), configuration.addresses.end(),
                               [&](const IpConfiguration::Address& each) { return each.address == from; });
  if (at == configuration.addresses.end()) return false;
  return std::any_of(configuration.interfaces.begin(), configuration.interfaces.end(),
                     [&](const IpConfiguration::Interface& each) { return each.port == at->port && away(each); });
}

// RFC 6724, for a host with few links. It prefers the destination itself, then addresses of the link with the longest prefix towards it,
// and among these one of the destination's network.
bool HostAddresses::source_for(const ip::IpAddress& to, ip::IpAddress& from) const {
  const IpConfiguration& configuration = network_.configuration();
  const auto longest_route = [&](uint32_t port) {
    int longest = -1;
    for (const IpConfiguration::Interface& each : configuration.interfaces) {
      if (each.port == port) longest = std::max(longest, configuration.leads_to(each, to));
    }
    return longest;
  };
  // Ranks routes: the longest prefix first, a network before a route of the same length, a gateway last.
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

uint32_t HostAddresses::mtu_from(const ip::IpAddress& from) const {
  const IpConfiguration& configuration = network_.configuration();
  for (const IpConfiguration::Address& each : configuration.addresses) {
    if (each.address != from) continue;
    for (const IpConfiguration::Interface& link : configuration.interfaces) {
      if (link.port == each.port && link.mtu != 0) return link.mtu;
    }
  }
  return ip::kIpv6MtuMin;
}

bool HostAddresses::is_broadcast(const ip::IpAddress& address) const {
  if (!address.is_ipv4() || (address.bytes[15] & 3) != 3) return false;  // smaller networks have no broadcast address
  if (address.is_limited_broadcast()) return true;
  const auto& addresses = network_.configuration().addresses;
  return std::any_of(addresses.begin(), addresses.end(), [&](const IpConfiguration::Address& each) {
    return each.address.is_ipv4() && is_directed_broadcast(address, each.address, each.prefix);
  });
}

std::optional<ip::IpAddress> HostAddresses::first_of(bool ipv4) const {
  const auto& own = network_.configuration().addresses;
  const auto at = std::find_if(own.begin(), own.end(), [&](const auto& each) { return each.address.is_ipv4() == ipv4; });
  return at == own.end() ? std::nullopt : std::optional(at->address);
}

}  // namespace unet::sockets
