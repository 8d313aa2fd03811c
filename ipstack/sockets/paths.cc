// paths.cc - which addresses a stack has, which of them it speaks from, and how messages to the network begin.
#include <algorithm>
#include <cstring>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {

bool Stack::is_own(const ip::IpAddress& address) const {
  const auto& addresses = network_.configuration().addresses;
  return std::any_of(addresses.begin(), addresses.end(),
                     [&](const IpConfiguration::Address& each) { return !each.tentative && each.address == address; });
}

// RFC 6724 as far as a host with one or a few links needs it: the destination itself, an address of its network, of its scope on a link
// that leads there.
bool Stack::source_for(const ip::IpAddress& to, ip::IpAddress& from) const {
  const IpConfiguration& configuration = network_.configuration();
  const auto leads_there = [&](uint32_t port) {
    return std::any_of(configuration.interfaces.begin(), configuration.interfaces.end(), [&](const IpConfiguration::Interface& each) {
      return each.port == port && configuration.leads_to(each, to);
    });
  };
  const bool near = to.is_link_local() || to.is_multicast() || to.is_limited_broadcast();
  int best = 0;
  for (const IpConfiguration::Address& each : configuration.addresses) {
    if (each.tentative || each.address.is_ipv4() != to.is_ipv4()) continue;
    int rank = 0;
    if (each.address == to) rank = 4;
    else if (same_network(each.address, to, each.prefix)) rank = 3;
    else if (near) rank = each.address.is_link_local() == to.is_link_local() ? 2 : 1;
    else if (!each.address.is_link_local() && leads_there(each.port)) rank = 2;
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
      if (link.port == each.port) return link.mtu;
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
