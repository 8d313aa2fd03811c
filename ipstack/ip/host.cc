// host.cc - input: stations, packets, fragments, ICMP; and the ICMP errors that a host sends.
#include "ipstack/ip/host.h"

#include <algorithm>
#include <cstring>

#include "unet/base/random.h"

namespace unet::ip {
namespace {

NeighbourOptions with_seed(NeighbourOptions options, uint64_t seed) noexcept {
  options.seed = next_random(seed);
  return options;
}

}  // namespace

const char* name_of(HostCounter counter) noexcept {
  constexpr std::array<const char*, static_cast<size_t>(HostCounter::count)> kNames{
      "frames", "other_station", "unknown_type", "bad_packet", "other_host", "bad_source", "bad_icmp", "bad_discovery", "bad_arp",
      "arrived", "echoes", "errors_sent", "errors_limited", "no_route", "no_source", "no_buffer", "too_big", "sent", "fragments_sent",
      "unreachable", "conflicts", "bad_dhcp", "bad_group", "not_listened",
      "redirected", "bad_redirect", "fragments_refused", "fragments_given_up", "fragments_timed_out"};
  static_assert(kNames.back() != nullptr, "a name is missing");
  return kNames[static_cast<size_t>(counter)];
}

uint64_t Host::counter(HostCounter counter) const noexcept {
  switch (counter) {
    case HostCounter::fragments_refused: return reassembly_.counters().refused;
    case HostCounter::fragments_given_up: return reassembly_.counters().overflow;
    case HostCounter::fragments_timed_out: return reassembly_.counters().timed_out;
    default: return counters_[static_cast<size_t>(counter)];
  }
}

Host::Host(const HostOptions& options, Nanoseconds now)
    : options_(options), addresses_(options.mac, options.address_key),
      routes_(options.routes, options.gateway4, options.gateway6, options.seed ^ 5), hop_limit6_(options.hop_limit),
      mtu_{.link = options.mtu, .by_dhcp = options.mtu, .by_router = options.mtu}, reassembly_(options.reassembly),
      neighbours_(with_seed(options.neighbours, options.seed)), groups4_(true, options.seed ^ 4), groups6_(false, options.seed ^ 6),
      path_mtu_({.link_mtu = options.mtu, .seed = options.seed}),
      frames_(options.buffers, static_cast<uint32_t>(sizeof(EthernetHeader)) + options.mtu), random_(options.seed),
      errors_(std::min(options.errors_per_second, 1'000'000u), now) {
  unreachable_.reserve(kUnreachableMax);
  for (uint32_t& each : next_id_) each = static_cast<uint32_t>(next_random(random_));
  for (const HostAddress& each : options.addresses) {
    add_address(each.address, each.prefix, options.claim, now);
    routes_.add_prefix(each.address, each.prefix);
  }
  if (options.dhcp) {
    const auto size_max = static_cast<uint16_t>(std::min<uint32_t>(options.mtu, 65535));
    dhcp_.emplace(options.mac, size_max, next_random(random_), now);
  }
  if (!options.ipv6) return;
  const IpAddress own_link = addresses_.generate(link_local(options.mac), 0);
  add_address(own_link, OwnAddresses::kMadeBits, options.claim, now);
  if (OwnAddress* const made = addresses_.find(own_link)) made->made = true;
  if (options.autoconfigure) router_discovery_.start(now + next_random(random_) % kSecond);  // RFC 4861, 6.3.7
}

bool Host::is_for_us(const MacAddress& station) const noexcept {
  if (station == options_.mac || station == kBroadcast || station == group_station(kAllHosts4)) return true;
  if (is_station(station)) return false;
  if (groups4_.has_station(station)) return true;
  if (!options_.ipv6) return false;
  if (station == group_station(kAllNodes6) || groups6_.has_station(station)) return true;
  return std::any_of(addresses_.begin(), addresses_.end(), [&](const OwnAddress& each) {
    return !each.address().is_ipv4() && group_station(solicited_node(each.address())) == station;
  });
}

bool Host::handle_frame(Bytes frame, Nanoseconds now, Arrival& arrival, bool checked) noexcept {
  count(HostCounter::frames);
  EthernetHeader header;
  if (frame.size() < sizeof header) return count(HostCounter::bad_packet), false;
  std::memcpy(&header, frame.data(), sizeof header);
  if (!is_for_us(header.to) || !is_station(header.from)) return count(HostCounter::other_station), false;
  const Bytes packet = frame.subspan(sizeof header);
  switch (uint16_t{header.type}) {
    case kEtherTypeArp: return handle_arp(packet, now), false;
    case kEtherTypeIpv4: case kEtherTypeIpv6:
      return handle_packet({packet, header.from, is_station(header.to), header.type == kEtherTypeIpv4, checked}, now, arrival);
    default: return count(HostCounter::unknown_type), false;
  }
}

// `group`: set for a multicast or broadcast address.
bool Host::is_own_destination(const IpAddress& to, bool& group) const noexcept {
  group = to.is_multicast() || to.is_limited_broadcast();
  if (to == kAllHosts4 || to == kAllNodes6 || to.is_limited_broadcast()) return true;
  for (const OwnAddress& each : addresses_) {
    const IpAddress& address = each.address();
    // A tentative address receives no packets (RFC 4862, 5.4). Its solicited-node group does: others claim the address there.
    if (to == address) return each.is_assigned();
    if (!address.is_ipv4() && to == solicited_node(address)) return true;
    if (is_directed_broadcast(to, address, each.prefix)) return group = true;
  }
  return group && (to.is_ipv4() ? groups4_ : groups6_).is_member(to);
}

// RFC 1122, 3.2.1.3: the source must be a single other host; parse_ip_packet() has checked the rest. Hosts without an address use the
// unspecified one.
bool Host::is_good_source(const IpView& packet) const noexcept {
  if (packet.from.is_loopback()) return false;
  if (packet.from.is_ipv4() && !packet.from.is_unspecified() && !packet.from.is_one_host(true)) return false;
  const OwnAddress* const own = addresses_.find(packet.from);
  return (own == nullptr || !own->is_assigned()) && !addresses_.have_broadcast(packet.from);
}

bool Host::handle_packet(const Frame& frame, Nanoseconds now, Arrival& arrival) noexcept {
  const bool ipv4 = frame.ipv4;
  bool checked = frame.checked;
  arrival = {};
  Problem problem;
  IpView& packet = arrival.packet;
  IpError error = parse_ip_packet(frame.packet, packet, problem);
  if (error != IpError::none && !problem.report) return count(HostCounter::bad_packet), false;
  if (packet.ipv4 != ipv4 || (!ipv4 && !options_.ipv6)) return count(HostCounter::bad_packet), false;
  if (!is_own_destination(packet.to, arrival.to_group)) return count(HostCounter::other_host), false;
  if (!frame.alone && !arrival.to_group) {
    if (ipv4) return count(HostCounter::other_host), false;  // RFC 1122, 3.3.6
    arrival.to_group = true;                                 // RFC 4443, 2.4 (e.4)
  }
  if (!is_good_source(packet)) return count(HostCounter::bad_source), false;
  if (const Memberships& groups = ipv4 ? groups4_ : groups6_;
      groups.is_member(packet.to) && !groups.accepts(packet.to, packet.from) && !is_membership(packet)) {
    return count(HostCounter::not_listened), false;
  }
  const auto report = [&] {
    count(HostCounter::bad_packet);
    send_error(arrival, {.kind = IcmpKind::parameter_problem, .code = problem.code, .value = problem.pointer}, now, problem.even_of_groups);
  };
  if (error != IpError::none) return report(), false;
  if (packet.is_fragment()) {
    IpView whole;
    if (reassembly_.add(packet, now, whole, problem) != Reassembly::Outcome::complete) {
      if (problem.report) report();
      return false;
    }
    packet = whole;
    checked = false;
    error = parse_reassembled(whole.protocol, whole.packet, whole.payload, packet, problem);
    if (error != IpError::none) {
      if (problem.report) report();
      else count(HostCounter::bad_packet);
      return false;
    }
  }
  if (packet.protocol == (ipv4 ? Protocol::kIcmp : Protocol::kIcmp6)) return handle_icmp(frame.station, now, arrival);
  if (ipv4 && packet.protocol == Protocol::kIgmp) return handle_membership(packet, now), false;
  if (packet.from.is_unspecified()) return count(HostCounter::bad_source), false;
  if (packet.protocol == Protocol::kNoNext) return false;
  if (dhcp_ && handle_dhcp(packet, checked, now)) return false;
  count(HostCounter::arrived);
  return true;
}

// ---- ICMP

bool Host::handle_icmp(const MacAddress& station, Nanoseconds now, Arrival& arrival) noexcept {
  IcmpView& icmp = arrival.icmp;
  if (parse_icmp(arrival.packet, icmp) != IcmpError::none) return count(HostCounter::bad_icmp), false;
  const bool discovery = !arrival.packet.ipv4 && icmp.type >= static_cast<uint8_t>(DiscoveryKind::router_solicitation) &&
                         icmp.type <= static_cast<uint8_t>(DiscoveryKind::redirect);
  if (discovery) return handle_discovery(station, arrival.packet, now), false;
  if (!arrival.packet.ipv4 && is_membership(arrival.packet)) return handle_membership(arrival.packet, now), false;
  if (arrival.packet.from.is_unspecified()) return count(HostCounter::bad_source), false;
  if (icmp.kind == IcmpKind::echo_request) return answer_echo(arrival, now), false;
  if (icmp.kind == IcmpKind::echo_reply) {
    arrival.kind = Arrival::Kind::echo_reply;
    return count(HostCounter::arrived), true;
  }
  // Accept only errors about packets of ours.
  if (!icmp.error || arrival.to_group || !parse_quoted(icmp.rest, arrival.packet.ipv4, arrival.quoted)) {
    return count(HostCounter::bad_icmp), false;
  }
  if (addresses_.find(arrival.quoted.from) == nullptr) return count(HostCounter::bad_icmp), false;
  if (icmp.kind == IcmpKind::redirect) {
    // RFC 1122, 3.2.2.2: every code counts as a host redirect. The gateway's address is in bytes 4 to 7 of the message.
    const IpAddress next_hop = ipv4_address(arrival.packet.payload.data() + 4);
    return handle_redirect(arrival.packet.from, arrival.quoted.to, next_hop, now), false;
  }
  if (dhcp_ && is_dhcp_question(arrival.quoted)) return false;  // no DHCP server there: the client asks others later
  arrival.kind = Arrival::Kind::icmp_error;
  return count(HostCounter::arrived), true;
}

// RFC 1122, 3.2.2.6: an echo request to a group may be ignored. It is: all hosts would answer a forged source (amplification).
void Host::answer_echo(const Arrival& arrival, Nanoseconds now) noexcept {
  if (arrival.to_group) return;
  const IpView& packet = arrival.packet;
  std::array<std::byte, kIcmpBytes> header;
  emit_echo(header.data(), packet.to, packet.from, true, arrival.icmp.id, arrival.icmp.sequence, arrival.icmp.rest);
  const IpFields fields{.from = packet.to, .to = packet.from, .protocol = packet.protocol, .traffic_class = packet.traffic_class,
                        .dont_fragment = false};
  if (send(fields, header, arrival.icmp.rest, now) == SendResult::sent) count(HostCounter::echoes);
}

// RFC 1122, 3.2.2; RFC 4443, 2.4: packets that cause no ICMP error.
void Host::send_error(const Arrival& arrival, const IcmpErrorFields& fields, Nanoseconds now, bool even_of_groups) noexcept {
  const IpView& packet = arrival.packet;
  if (arrival.to_group && !even_of_groups) return;
  if (packet.from.is_unspecified() || packet.from.is_multicast() || (packet.ipv4 && packet.offset != 0)) return;
  // Parse the packet as the receiver of the error will: extension headers may not have been walked, or may be truncated.
  QuotedPacket about;
  if (!parse_quoted(packet.packet, packet.ipv4, about)) return;
  const bool of_icmp = about.protocol == (packet.ipv4 ? Protocol::kIcmp : Protocol::kIcmp6);
  if (of_icmp && (about.payload.empty() || is_icmp_error(std::to_integer<uint8_t>(about.payload[0]), packet.ipv4))) return;
  if (!errors_.take(now)) return count(HostCounter::errors_limited);
  const std::optional<IpAddress> from = arrival.to_group ? source_for(packet.from) : std::optional(packet.to);
  if (!from) return count(HostCounter::no_source);
  std::array<std::byte, kIcmpBytes + kIcmpQuote6Max> message;
  const uint32_t length = emit_icmp_error(message.data(), *from, packet.from, fields, packet.packet);
  const IpFields answer{.from = *from, .to = packet.from, .protocol = packet.ipv4 ? Protocol::kIcmp : Protocol::kIcmp6,
                        .dont_fragment = false};
  if (send(answer, {}, Bytes(message).first(length), now) == SendResult::sent) count(HostCounter::errors_sent);
}

void Host::refuse_protocol(const Arrival& arrival, Nanoseconds now) noexcept {
  if (arrival.packet.ipv4) return send_error(arrival, {.why = Unreachable::protocol}, now);
  // RFC 4443, 3.4: the pointer is the offset of the next-header field.
  send_error(arrival, {.kind = IcmpKind::parameter_problem, .code = 1, .value = arrival.packet.protocol_at}, now);
}

bool Host::believe_too_big(const Arrival& arrival, Nanoseconds now) noexcept {
  if (arrival.kind != Arrival::Kind::icmp_error || arrival.icmp.kind != IcmpKind::packet_too_big) return false;
  // The packet's length by its own header, as the quote may be truncated.
  be16 said;
  std::memcpy(&said, arrival.icmp.rest.data() + (arrival.packet.ipv4 ? 2 : 4), sizeof said);
  const uint32_t size = uint32_t{said} + (arrival.packet.ipv4 ? 0 : kIpv6Bytes);
  return path_mtu_.handle_too_big(arrival.quoted.to, arrival.icmp.mtu, size, now);
}

void Host::expire_fragments(Nanoseconds now) noexcept {
  for (Arrival begun; reassembly_.expire(now, begun.packet);) {
    if (begun.packet.payload.empty()) continue;
    if (!is_own_destination(begun.packet.to, begun.to_group)) continue;
    send_error(begun, {.kind = IcmpKind::time_exceeded, .code = 1}, now);
  }
}

}  // namespace unet::ip
