// host_addresses.cc - a host's addresses, ARP and neighbour discovery, and router advertisements.
#include <algorithm>

#include "ipstack/ip/host.h"
#include "unet/base/random.h"

namespace unet::ip {
namespace {

constexpr uint32_t kTwoHours = 7200;                           // seconds; RFC 4862, 5.5.3 (e)
constexpr uint32_t kInfinite = ~uint32_t{0};                   // seconds: infinite
constexpr Nanoseconds kReachableMax = 3600 * kSecond;          // RFC 4861, 6.2.1: limit of AdvReachableTime
constexpr Nanoseconds kRetransmitMax = 10 * kSecond;

}  // namespace

// ---- addresses

void Host::add_address(const IpAddress& address, uint8_t prefix, bool probe, Nanoseconds now) {
  if (addresses_.size() == OwnAddresses::kMax || addresses_.find(address) != nullptr) return;
  addresses_.add({.claim = AddressClaim(address, options_.mac, probe, next_random(random_), now), .prefix = prefix});
}

// After a conflict: claims the same address again, or the next generated one.
void Host::claim_anew(OwnAddress& own, Nanoseconds now) noexcept {
  IpAddress address = own.address();
  if (own.made) {
    release_group(own, now);
    address = addresses_.generate(address, ++own.conflicts);
  }
  addresses_.replace_claim(own, AddressClaim(address, options_.mac, true, next_random(random_), now));
  own.retry_at = kNever;
}

void Host::release_group(OwnAddress& own, Nanoseconds now) noexcept {
  if (own.holds_group) groups6_.release(solicited_node(own.address()), now);
  own.holds_group = false;
}

bool Host::remove_address(const IpAddress& address, Nanoseconds now) noexcept {
  OwnAddress* const own = addresses_.find(address);
  if (own == nullptr) return false;
  routes_.remove_prefix(address, own->prefix);
  release_group(*own, now);
  addresses_.remove(*own);
  return true;
}

// Handles a change of a claim's state, which was `before`.
void Host::on_claim_change(OwnAddress& own, AddressClaim::State before, Nanoseconds now) noexcept {
  if (addresses_.handle_claim_change(own, before, now)) count(HostCounter::conflicts);
}

Host::AddressState Host::state_of(const IpAddress& address) const noexcept {
  const OwnAddress* const found = addresses_.find(address);
  if (found == nullptr) return AddressState::none;
  switch (found->claim.state()) {
    case AddressClaim::State::tentative: return AddressState::tentative;
    case AddressClaim::State::assigned: return AddressState::assigned;
    case AddressClaim::State::conflict: return AddressState::none;
  }
  return AddressState::none;
}

std::vector<IpAddress> Host::addresses() const {
  std::vector<IpAddress> all;
  for (const OwnAddress& each : addresses_) {
    if (each.is_assigned()) all.push_back(each.address());
  }
  return all;
}

void Host::set_link_mtu(uint32_t mtu) noexcept { mtu_.link = std::min(mtu, options_.mtu); }

HostStatus Host::status() const noexcept {
  HostStatus status;
  for (const OwnAddress& each : addresses_) {
    const AddressState state = state_of(each.address());
    if (state == AddressState::none || status.count == HostStatus::kAddressesMax) continue;
    status.addresses[status.count++] = {each.address(), each.prefix, state == AddressState::tentative};
  }
  status.gateway4 = routes_.gateway4().value_or(IpAddress{});
  status.gateway6 = routes_.gateway6().value_or(IpAddress{});
  status.mtu = options_.ipv6 ? std::min(mtu_.of(true), mtu_.of(false)) : mtu_.of(true);
  return status;
}

bool Host::has_conflict(const IpAddress& address) const noexcept {
  const OwnAddress* const found = addresses_.find(address);
  return found != nullptr && found->claim.state() == AddressClaim::State::conflict;
}

void Host::expire_addresses(Nanoseconds now) noexcept {
  router_discovery_.publish(now);
  for (OwnAddress& each : addresses_) {
    if (each.retry_at <= now) claim_anew(each, now);
  }
  addresses_.deprecate(now);
  while (OwnAddress* const ended = addresses_.find_ended(now)) {
    release_group(*ended, now);
    addresses_.remove(*ended);
  }
  routes_.expire(now);
}

void Host::confirm(const IpAddress& to, Nanoseconds now) noexcept {
  const std::optional<Route> route = route_to(to, now);
  if (route && !route->direct_group) neighbours_.confirm(route->next_hop, now);
}

// ---- ARP (RFC 826)

void Host::handle_arp(Bytes packet, Nanoseconds now) noexcept {
  Arp arp;
  if (!parse_arp(packet, arp)) return count(HostCounter::bad_arp);
  for (OwnAddress& each : addresses_) {
    const AddressClaim::State before = each.claim.state();
    if (arp.sender.is_unspecified()) each.claim.handle_probe(arp.target, arp.sender_mac, now);
    else each.claim.handle_claim(arp.sender, arp.sender_mac, now);
    on_claim_change(each, before, now);
  }
  decline_conflict(now);
  const OwnAddress* const asked = addresses_.find(arp.target);
  const bool for_us = asked != nullptr && asked->is_assigned();
  if (addresses_.find(arp.sender) != nullptr) return;  // a sender with an address of ours is no neighbour
  if (arp.operation == ArpOperation::reply) {
    if (for_us) neighbours_.handle_answer(arp.sender, arp.sender_mac, true, true, now);
    return take_released();
  }
  // RFC 826: update a known sender; learn a sender that asks for us, as an answer follows. Gratuitous ARP only updates.
  const bool known = neighbours_.state(arp.sender).has_value();
  if (!arp.sender.is_unspecified() && (known || (for_us && routes_.is_on_link(arp.sender)))) {
    neighbours_.handle_question(arp.sender, arp.sender_mac, now);
  }
  take_released();
  if (!for_us) return;
  std::array<std::byte, kEthernetBytes + kArpBytes> frame;
  const Arp reply{.operation = ArpOperation::reply, .sender_mac = options_.mac, .sender = arp.target, .target_mac = arp.sender_mac,
                  .target = arp.sender};
  queue_message(frame.data(), emit_arp_frame(frame.data(), arp.sender_mac, reply));
}

uint32_t Host::emit_arp_frame(std::byte* frame, const MacAddress& to, const Arp& arp) const noexcept {
  emit_ethernet(frame, to, options_.mac, kEtherTypeArp);
  emit_arp(frame + kEthernetBytes, arp);
  return kEthernetBytes + kArpBytes;
}

// ---- neighbour discovery (RFC 4861)

void Host::handle_discovery(const MacAddress& station, const IpView& packet, Nanoseconds now) noexcept {
  Discovery discovery;
  if (!parse_discovery(packet, discovery)) return count(HostCounter::bad_discovery);
  switch (discovery.kind) {
    case DiscoveryKind::neighbour_solicitation: handle_solicitation(station, packet, discovery, now); break;
    case DiscoveryKind::neighbour_advertisement: handle_advertisement(packet, discovery, now); break;
    case DiscoveryKind::router_advertisement: handle_router(packet, discovery, now); break;
    case DiscoveryKind::router_solicitation: break;  // for routers
    case DiscoveryKind::redirect:
      if (!handle_redirect(packet.from, discovery.destination, discovery.target, now)) break;
      if (discovery.target_mac) neighbours_.handle_question(discovery.target, *discovery.target_mac, now);
      break;
  }
  take_released();
}

// RFC 4861, 7.2.3 and 7.2.4: a neighbour solicitation.
void Host::handle_solicitation(const MacAddress& station, const IpView& packet, const Discovery& discovery, Nanoseconds now) noexcept {
  OwnAddress* const asked = addresses_.find(discovery.target);
  if (asked == nullptr) return;
  const bool probe = packet.from.is_unspecified();
  const AddressClaim::State before = asked->claim.state();
  if (probe) asked->claim.handle_probe(discovery.target, station, now);
  on_claim_change(*asked, before, now);
  if (!asked->is_assigned()) return;
  if (!probe && discovery.source_mac && routes_.is_on_link(packet.from)) {
    neighbours_.handle_question(packet.from, *discovery.source_mac, now);
  }
  std::array<std::byte, kEthernetBytes + kIpv6Bytes + kDiscoveryBytesMax> frame;
  std::byte* const message = frame.data() + kEthernetBytes + kIpv6Bytes;
  const IpAddress to = probe ? kAllNodes6 : packet.from;
  const MacAddress to_station = probe ? group_station(kAllNodes6) : discovery.source_mac.value_or(station);
  const uint32_t length = emit_neighbour_advertisement(message, discovery.target, to, discovery.target, options_.mac, !probe, true);
  queue_message(frame.data(), emit_discovery_frame(frame.data(), discovery.target, to, to_station, length));
}

// RFC 4861, 7.2.5: a neighbour advertisement.
void Host::handle_advertisement(const IpView&, const Discovery& discovery, Nanoseconds now) noexcept {
  if (OwnAddress* const claimed = addresses_.find(discovery.target); claimed != nullptr) {
    const AddressClaim::State before = claimed->claim.state();
    claimed->claim.handle_claim(discovery.target, discovery.target_mac.value_or(MacAddress{}), now);
    on_claim_change(*claimed, before, now);
    return;
  }
  // 7.2.5: a neighbour that is no router any more stops being the default router.
  if (!discovery.router && neighbours_.state(discovery.target) && routes_.withdraw_router(discovery.target)) {
    router_discovery_.note_change();
  }
  neighbours_.handle_answer(discovery.target, discovery.target_mac, discovery.solicited, discovery.override_entry, now);
}

// RFC 4861, 6.3.4: a router advertisement.
void Host::handle_router(const IpView& packet, const Discovery& discovery, Nanoseconds now) noexcept {
  if (!options_.autoconfigure) return;
  router_discovery_.note_change();
  if (discovery.lifetime_s != 0) router_discovery_.stop();  // 6.3.7
  if (discovery.source_mac) neighbours_.handle_question(packet.from, *discovery.source_mac, now);
  if (discovery.hop_limit != 0) hop_limit6_ = discovery.hop_limit;
  if (discovery.mtu != 0 && discovery.mtu <= options_.mtu) mtu_.by_router = discovery.mtu;
  // Limit the times: packets must not wait for a neighbour indefinitely.
  neighbours_.set_times(std::min(discovery.reachable_ms * kMillisecond, kReachableMax),
                        std::min(discovery.retransmit_ms * kMillisecond, kRetransmitMax));
  routes_.advertise_router(packet.from, now + discovery.lifetime_s * kSecond, now);
  for (uint32_t i = 0; i < discovery.prefix_count; ++i) take_prefix(discovery.prefixes[i], now);
}

// RFC 4861, 6.3.4 and RFC 4862, 5.5.3: a prefix information option.
void Host::take_prefix(const Prefix& prefix, Nanoseconds now) noexcept {
  const auto until = [&](uint32_t seconds) { return seconds == kInfinite ? kNever : now + seconds * kSecond; };
  if (prefix.on_link) routes_.advertise_prefix(prefix.address, prefix.bits, until(prefix.valid_s), most_prefixes(), now);
  if (!prefix.autonomous || prefix.bits != OwnAddresses::kMadeBits) return;
  const IpAddress address = addresses_.generate(prefix.address, 0);
  if (!address.is_one_host(false)) return;  // 0::/8 is reserved
  const auto made = std::find_if(addresses_.begin(), addresses_.end(), [&](const OwnAddress& each) {
    return each.of_router && same_network(each.address(), prefix.address, OwnAddresses::kMadeBits);
  });
  OwnAddress* const known = made != addresses_.end() ? &*made : addresses_.find(address);
  if (known == nullptr) {
    if (prefix.valid_s == 0 || addresses_.size() >= most_addresses()) return;
    addresses_.add({.claim = AddressClaim(address, options_.mac, options_.claim, next_random(random_), now), .prefix = prefix.bits,
                    .valid_until = until(prefix.valid_s), .preferred_until = until(prefix.preferred_s), .of_router = true, .made = true});
    return;
  }
  if (!known->of_router) return;
  known->preferred_until = until(prefix.preferred_s);
  known->deprecated = known->preferred_until <= now;
  // A lifetime is not shortened below two hours: a forged advertisement could otherwise end an address.
  const Nanoseconds left = known->valid_until == kNever ? kNever : known->valid_until - now;
  if (prefix.valid_s > kTwoHours || until(prefix.valid_s) > known->valid_until) known->valid_until = until(prefix.valid_s);
  else if (left > kTwoHours * kSecond) known->valid_until = now + kTwoHours * kSecond;
}

uint32_t Host::emit_discovery_frame(std::byte* frame, const IpAddress& from, const IpAddress& to, const MacAddress& station,
                                    uint32_t length) const noexcept {
  return emit_ip_frame(frame, station, {.from = from, .to = to, .protocol = Protocol::kIcmp6, .hop_limit = kDiscoveryHops}, length);
}

uint32_t Host::emit_ip_frame(std::byte* frame, const MacAddress& station, const IpFields& fields, uint32_t length) const noexcept {
  emit_ethernet(frame, station, options_.mac, fields.from.is_ipv4() ? kEtherTypeIpv4 : kEtherTypeIpv6);
  return kEthernetBytes + emit_ip_header(frame + kEthernetBytes, fields, length) + length;
}

// ---- probes and solicitations

uint32_t Host::poll_claims(Nanoseconds now, std::byte* frame) noexcept {
  for (OwnAddress& each : addresses_) {
    AddressClaim::Message message;
    const AddressClaim::State before = each.claim.state();
    const bool some = each.claim.poll_message(now, message);
    on_claim_change(each, before, now);
    if (!some) continue;
    const IpAddress& address = each.address();
    if (address.is_ipv4()) {
      const bool probe = message == AddressClaim::Message::probe;
      return emit_arp_frame(frame, kBroadcast, {.operation = ArpOperation::request, .sender_mac = options_.mac,
                                                   .sender = probe ? ipv4_address(0u) : address, .target = address});
    }
    const IpAddress group = solicited_node(address);
    std::byte* const at = frame + kEthernetBytes + kIpv6Bytes;
    const uint32_t length = emit_neighbour_solicitation(at, kNone6, group, address, options_.mac);
    return emit_discovery_frame(frame, kNone6, group, group_station(group), length);
  }
  return 0;
}

uint32_t Host::poll_question(Nanoseconds now, std::byte* frame) noexcept {
  for (Neighbours::Question question; neighbours_.poll_question(now, question);) {
    const std::optional<IpAddress> from = source_for(question.target);
    if (!from) continue;  // no source address any more; counts as asked
    if (from->is_ipv4()) {
      return emit_arp_frame(frame, question.station.value_or(kBroadcast),
                            {.operation = ArpOperation::request, .sender_mac = options_.mac, .sender = *from, .target = question.target});
    }
    const IpAddress to = question.station ? question.target : solicited_node(question.target);
    std::byte* const at = frame + kEthernetBytes + kIpv6Bytes;
    const uint32_t length = emit_neighbour_solicitation(at, *from, to, question.target, options_.mac);
    return emit_discovery_frame(frame, *from, to, question.station.value_or(group_station(to)), length);
  }
  return 0;
}

// RFC 4861, 6.3.7: three router solicitations, from the link-local address once it is assigned.
uint32_t Host::poll_router_question(Nanoseconds now, std::byte* frame) noexcept {
  if (!router_discovery_.poll_question(now)) return 0;
  const IpAddress from = source_for(kAllRouters6).value_or(kNone6);
  const uint32_t length = emit_router_solicitation(frame + kEthernetBytes + kIpv6Bytes, from, kAllRouters6, options_.mac);
  return emit_discovery_frame(frame, from, kAllRouters6, group_station(kAllRouters6), length);
}

}  // namespace unet::ip
