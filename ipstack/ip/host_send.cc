// host_send.cc - output: routes, source addresses, fragmentation, and packets that wait for address resolution.
#include <algorithm>
#include <cstring>

#include "ipstack/ip/host.h"
#include "unet/base/random.h"

namespace unet::ip {

std::optional<Host::Route> Host::route_to(const IpAddress& to, Nanoseconds now) const noexcept {
  // Packets to the host itself do not go to the link.
  if (to.is_unspecified() || to.is_loopback() || addresses_.find(to) != nullptr) return std::nullopt;
  if (to.is_multicast() || to.is_limited_broadcast() || addresses_.have_broadcast(to)) return Route{.next_hop = to, .direct_group = true};
  const std::optional<IpAddress> next_hop = routes_.next_hop(to, now);
  return next_hop ? std::optional(Route{.next_hop = *next_hop}) : std::nullopt;
}

std::optional<MacAddress> Host::station_for(const IpAddress& to, Nanoseconds now) noexcept {
  const std::optional<Route> route = route_to(to, now);
  if (!route) return std::nullopt;
  if (route->direct_group) return route->next_hop.is_multicast() ? group_station(route->next_hop) : kBroadcast;
  return neighbours_.state(route->next_hop) ? neighbours_.resolve(route->next_hop, now) : std::nullopt;
}

bool Host::is_news(const IpAddress& to, Nanoseconds now) const noexcept {
  const std::optional<Route> route = route_to(to, now);
  return route && !route->direct_group && !neighbours_.state(route->next_hop);
}

// RFC 1122, 3.2.2.2; RFC 4861, 8.1: accept a redirect only from the present first hop, and only to a neighbour.
bool Host::handle_redirect(const IpAddress& router, const IpAddress& to, const IpAddress& next_hop, Nanoseconds now) noexcept {
  const std::optional<Route> route = options_.redirects ? route_to(to, now) : std::nullopt;
  const bool right = route && !route->direct_group && route->next_hop == router && router != to && next_hop != router &&
                     next_hop.is_wire_host(to.is_ipv4()) && addresses_.find(next_hop) == nullptr;
  // The new next hop must be on-link. An IPv6 destination that is redirected to itself is on-link from now on.
  const bool near = routes_.is_on_link(next_hop) || (!to.is_ipv4() && next_hop == to);
  if (!right || !near || addresses_.have_broadcast(next_hop)) return count(HostCounter::bad_redirect), false;
  routes_.redirects().handle_redirect(to, next_hop, now);
  count(HostCounter::redirected);
  return true;
}

SendResult Host::send(IpFields fields, Bytes header, Bytes data, Nanoseconds now) noexcept {
  const std::optional<Route> route = route_to(fields.to, now);
  if (!route) return count(HostCounter::no_route), SendResult::no_route;
  if (fields.from.is_unspecified()) {
    const std::optional<IpAddress> from = source_for(fields.to);
    if (!from) return count(HostCounter::no_source), SendResult::no_source;
    fields.from = *from;
  } else if (const OwnAddress* const from = addresses_.find(fields.from);
             from == nullptr || !from->is_assigned() || fields.from.is_ipv4() != fields.to.is_ipv4()) {
    return count(HostCounter::no_source), SendResult::no_source;
  }
  const uint32_t mtu = route->direct_group ? mtu_.of(fields.to.is_ipv4()) : path_mtu(fields.to, now);
  const size_t length = header.size() + data.size();
  const bool fits = ip_header_size(fields) + length <= mtu;
  // The length field includes the header in IPv4, but not in IPv6.
  const size_t said = ip_header_size(fields) + length - (fields.from.is_ipv4() ? 0 : kIpv6Bytes);
  if (!fits && (fields.dont_fragment || said > 65535)) return count(HostCounter::too_big), SendResult::too_big;
  if (fields.hop_limit == 0) fields.hop_limit = fields.from.is_ipv4() ? options_.hop_limit : hop_limit6_;
  if (!fits) return send_cut(fields, *route, header, data, mtu, now);
  // RFC 6864: a packet that cannot be fragmented needs no identification.
  fields.id = fields.dont_fragment || !fields.from.is_ipv4() ? 0 : take_id(fields.to);
  return send_piece(fields, *route, header, data, now);
}

// Sends all fragments or none.
SendResult Host::send_cut(IpFields fields, const Route& route, Bytes header, Bytes data, uint32_t mtu, Nanoseconds now) noexcept {
  fields.more_fragments = true;
  const uint32_t room = (mtu - ip_header_size(fields)) / kFragmentUnit * kFragmentUnit;
  const auto length = static_cast<uint32_t>(header.size() + data.size());
  const uint32_t pieces = (length + room - 1) / room;
  const bool known = route.direct_group || neighbours_.resolve(route.next_hop, now).has_value();
  if (pieces > frames_.available() || (!known && pieces > Neighbours::kWaitingMax)) {
    return count(HostCounter::no_buffer), SendResult::no_buffer;
  }
  fields.id = take_id(fields.to);
  for (uint32_t at = 0; at < length; at += room) {
    const uint32_t size = std::min(room, length - at);
    fields.offset = at;
    fields.more_fragments = at + size < length;
    const uint32_t of_header = at < header.size() ? std::min<uint32_t>(size, static_cast<uint32_t>(header.size()) - at) : 0;
    const Bytes first = of_header != 0 ? header.subspan(at, of_header) : Bytes{};
    const size_t data_at = at < header.size() ? 0 : at - header.size();
    if (send_piece(fields, route, first, data.subspan(data_at, size - of_header), now) != SendResult::sent) return SendResult::no_buffer;
    count(HostCounter::fragments_sent);
  }
  return SendResult::sent;
}

SendResult Host::send_piece(const IpFields& fields, const Route& route, Bytes header, Bytes data, Nanoseconds now) noexcept {
  const std::optional<uint32_t> buffer = frames_.take();
  if (!buffer) return count(HostCounter::no_buffer), SendResult::no_buffer;
  std::byte* const frame = frames_.frame(*buffer);
  uint32_t size = emit_ethernet(frame, {}, options_.mac, fields.from.is_ipv4() ? kEtherTypeIpv4 : kEtherTypeIpv6);
  size += emit_ip_header(frame + size, fields, static_cast<uint32_t>(header.size() + data.size()));
  for (const Bytes part : {header, data}) {
    if (!part.empty()) std::memcpy(frame + size, part.data(), part.size());
    size += static_cast<uint32_t>(part.size());
  }
  frames_.set_length(*buffer, size);
  if (!go(*buffer, route, now)) return count(HostCounter::no_buffer), SendResult::no_buffer;
  count(HostCounter::sent);
  return SendResult::sent;
}

// Sends a frame to its next hop, or queues it for address resolution. False: too many packets wait, and this one is dropped.
bool Host::go(uint32_t buffer, const Route& route, Nanoseconds now) noexcept {
  std::optional<MacAddress> station;
  if (route.direct_group) station = route.next_hop.is_multicast() ? group_station(route.next_hop) : kBroadcast;
  else station = neighbours_.resolve(route.next_hop, now);
  if (!station) {
    take_released();  // packets of an entry evicted for this one
    if (!frames_.begin_wait()) {
      frames_.release(buffer);
      return false;
    }
    if (const std::optional<uint32_t> dropped = neighbours_.wait(route.next_hop, buffer)) {
      frames_.end_wait();
      frames_.release(*dropped);
    }
    return true;
  }
  std::memcpy(frames_.frame(buffer), station->data(), station->size());
  frames_.push(buffer);
  return true;
}

uint32_t Host::take_id(const IpAddress& to, uint32_t packets) noexcept {
  uint32_t& next = next_id_[hash_of(to, options_.seed) % next_id_.size()];
  const uint32_t first = next;
  next += packets;
  return first;
}

void Host::take_released() noexcept {
  for (Neighbours::Released each; neighbours_.poll_released(each);) {
    frames_.end_wait();
    if (each.failed) {
      frames_.release(each.packet);
      count(HostCounter::unreachable);
      routes_.redirects().forget(each.address);
      const bool told = std::find(unreachable_.begin(), unreachable_.end(), each.address) != unreachable_.end();
      if (!told && unreachable_.size() < kUnreachableMax) unreachable_.push_back(each.address);
      continue;
    }
    std::memcpy(frames_.frame(each.packet), each.station.data(), each.station.size());
    frames_.push(each.packet);
  }
}

bool Host::poll_unreachable(IpAddress& neighbour) noexcept {
  if (unreachable_.empty()) return false;
  neighbour = unreachable_.back();
  unreachable_.pop_back();
  return true;
}

// Queues a frame of the host itself, with its destination station in place.
void Host::queue_message(const std::byte* frame, uint32_t length) noexcept {
  const std::optional<uint32_t> buffer = frames_.take();
  if (!buffer) return count(HostCounter::no_buffer);
  std::memcpy(frames_.frame(*buffer), frame, length);
  frames_.set_length(*buffer, length);
  frames_.push(*buffer);
}

uint32_t Host::poll_frame(Nanoseconds now, MutableBytes room) noexcept {
  if (room.size() < frames_.frame_max()) return 0;
  expire_addresses(now);
  expire_fragments(now);
  if (const uint32_t length = poll_dhcp(now, room.data())) return length;
  if (const uint32_t length = poll_groups(now, room.data())) return length;
  if (const uint32_t length = poll_claims(now, room.data())) return length;
  if (const uint32_t length = poll_question(now, room.data())) return length;
  if (const uint32_t length = poll_router_question(now, room.data())) return length;
  take_released();
  return frames_.pop(room.data());
}

Nanoseconds Host::next_event() const noexcept {
  if (!frames_.empty()) return 0;
  Nanoseconds next = std::min({groups4_.next_event(), groups6_.next_event(), neighbours_.next_event(), reassembly_.next_event(),
                               routes_.next_event(), router_discovery_.next_event()});
  if (dhcp_) next = std::min(next, dhcp_->next_event());
  for (const OwnAddress& each : addresses_) next = std::min(next, each.next_event());
  return next;
}

}  // namespace unet::ip
