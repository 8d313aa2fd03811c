// neighbours.cc - questions and answers of ARP and neighbour discovery.
#include "drivers/udp/neighbours.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "drivers/udp/peers.h"
#include "unet/wire/neighbour_discovery.h"

namespace unet::drivers {
namespace {

constexpr MacAddress kNobody{};
constexpr uint32_t kFree = ~uint32_t{0};

}  // namespace

Neighbours::Neighbours(const DatagramAddress& own, uint32_t places)
    : own_(own),
      places_(places),
      table_(std::bit_ceil(size_t{places} * 2), kFree),
      multiplier_(index_multiplier(reinterpret_cast<uintptr_t>(table_.data()))) {}

size_t Neighbours::hash(const IpAddress& ip) const noexcept {
  uint64_t high, low;
  std::memcpy(&high, ip.bytes.data(), sizeof high);
  std::memcpy(&low, ip.bytes.data() + sizeof high, sizeof low);
  return static_cast<size_t>(((high * multiplier_ ^ high >> 32) + low) * multiplier_ >> 40);
}

void Neighbours::insert(uint32_t place) noexcept {
  size_t i = hash(places_[place].ip);
  while (table_[i & (table_.size() - 1)] != kFree) ++i;
  table_[i & (table_.size() - 1)] = place;
}

void Neighbours::clear(uint32_t place) noexcept {
  if (!places_[place].used) return;
  places_[place] = {};
  std::fill(table_.begin(), table_.end(), kFree);
  for (uint32_t i = 0; i < places_.size(); ++i) {
    if (places_[i].used) insert(i);
  }
}

void Neighbours::set(uint32_t place, const IpAddress& ip, const std::optional<MacAddress>& mac) noexcept {
  clear(place);
  places_[place] = {.ip = ip, .used = true};
  insert(place);
  if (!mac) return;
  places_[place].mac = *mac;
  places_[place].known = places_[place].fixed = true;
}

void Neighbours::want(uint32_t index, Nanoseconds now) noexcept {
  Place& place = places_[index];
  place.wanted = now;
  if (place.fixed || place.next != ~Nanoseconds{0}) return;
  place.next = now;  // it was never asked, or was given up
  next_ = std::min(next_, place.next);
  if (cursor_ != 0) next_pass_ = std::min(next_pass_, place.next);  // the current pass may be past this place
}

bool Neighbours::handle(Bytes frame, Nanoseconds now, Message& reply, std::optional<uint32_t>& changed) noexcept {
  reply.length = 0;
  if (frame.size() < kEthernetBytes) return false;
  EthernetHeader header;
  std::memcpy(&header, frame.data(), sizeof header);
  const Bytes packet = frame.subspan(kEthernetBytes);
  if (own_.ip.is_ipv4()) return header.type == kEtherTypeArp && handle_arp(packet, now, reply, changed);
  return header.type == kEtherTypeIpv6 && handle_discovery(packet, header.from, now, reply, changed);
}

// Learns only from neighbours that are asked for: otherwise any station could fill the table.
std::optional<uint32_t> Neighbours::learn(const IpAddress& ip, const MacAddress& mac, Nanoseconds now, bool answer) noexcept {
  std::optional<uint32_t> changed;
  for (size_t i = hash(ip);; ++i) {
    const uint32_t found = table_[i & (table_.size() - 1)];
    if (found == kFree) return changed;
    Place& place = places_[found];
    if (!(place.ip == ip) || place.fixed) continue;  // the gateway may also be a peer: then it has two places
    if (answer) {
      place.asked = 0;
      place.next = now + kRenew;
      next_ = std::min(next_, place.next);
      if (cursor_ != 0) next_pass_ = std::min(next_pass_, place.next);
    }
    if ((place.known && place.mac == mac) || (!answer && !place.known)) continue;
    place.mac = mac;
    place.known = true;
    changed = found;
  }
}

bool Neighbours::handle_arp(Bytes packet, Nanoseconds now, Message& reply, std::optional<uint32_t>& changed) noexcept {
  ip::Arp arp;
  if (!ip::parse_arp(packet, arp) || arp.sender == own_.ip) return false;
  const bool is_reply = arp.operation == ip::ArpOperation::reply;
  if (is_reply && !(arp.target == own_.ip)) return false;
  changed = learn(arp.sender, arp.sender_mac, now, is_reply);
  if (!is_reply && arp.target == own_.ip) {
    emit_arp(reply, ip::ArpOperation::reply, arp.sender_mac, arp.sender_mac, arp.sender);
    ++answered_;
  }
  return true;
}

bool Neighbours::handle_discovery(Bytes bytes, const MacAddress& station, Nanoseconds now, Message& reply,
                                  std::optional<uint32_t>& changed) noexcept {
  ip::IpView packet;
  ip::Problem problem;
  ip::IcmpView icmp;
  ip::Discovery discovery;
  if (ip::parse_ip_packet(bytes, packet, problem) != ip::IpError::none || packet.protocol != kProtocolIcmp6) return false;
  if (ip::parse_icmp(packet, icmp) != ip::IcmpError::none || !ip::parse_discovery(packet, discovery)) return false;
  if (discovery.kind == ip::DiscoveryKind::neighbour_advertisement) {
    if (!discovery.target_mac || discovery.target == own_.ip) return false;
    changed = learn(discovery.target, *discovery.target_mac, now, true);
    return true;
  }
  if (discovery.kind != ip::DiscoveryKind::neighbour_solicitation) return false;
  const bool unspecified = packet.from.is_unspecified();  // another host tests whether the address is free
  if (discovery.source_mac && !unspecified) changed = learn(packet.from, *discovery.source_mac, now, false);
  if (!(discovery.target == own_.ip)) return true;
  const MacAddress asker = discovery.source_mac.value_or(station);
  if (unspecified) emit_discovery(reply, true, ip::group_station(ip::kAllNodes6), ip::kAllNodes6, own_.ip, false);
  else if (is_station(asker)) emit_discovery(reply, true, asker, packet.from, own_.ip, true);
  answered_ += reply.length != 0;
  return true;
}

bool Neighbours::ask(Message& question, Nanoseconds now) noexcept {
  if (now < next_ && cursor_ == 0) return false;
  while (cursor_ < places_.size()) {
    Place& place = places_[cursor_++];
    if (place.next > now) {
      next_pass_ = std::min(next_pass_, place.next);
      continue;
    }
    if (place.known && place.asked >= kUnanswered) place.known = false;
    const bool wanted = place.always || now - place.wanted < kRenew;
    if (!wanted) {
      // The neighbour stays known until the next send to it, which asks again at once.
      place.next = ~Nanoseconds{0};
      place.asked = 0;
      continue;
    }
    emit_question(question, place);
    // A known neighbour has time: a machine that is busy for less than a second stays known.
    place.next = now + (place.known ? kAskEvery : std::min(kAskEvery, kAskFirst << std::min(place.asked, 8u)));
    next_pass_ = std::min(next_pass_, place.next);
    ++place.asked;
    ++asked_;
    return true;
  }
  cursor_ = 0;
  next_ = next_pass_ == ~Nanoseconds{0} ? next_pass_ : std::max(next_pass_, now + kPassEvery);
  next_pass_ = ~Nanoseconds{0};
  return false;
}

void Neighbours::emit_question(Message& question, const Place& place) const noexcept {
  const bool direct = place.known && place.asked < kUnanswered / 2;
  if (own_.ip.is_ipv4()) return emit_arp(question, ip::ArpOperation::request, direct ? place.mac : kBroadcast, kNobody, place.ip);
  const IpAddress group = ip::solicited_node(place.ip);
  emit_discovery(question, false, direct ? place.mac : ip::group_station(group), direct ? place.ip : group, place.ip, false);
}

void Neighbours::emit_arp(Message& message, ip::ArpOperation operation, const MacAddress& to, const MacAddress& target,
                          const IpAddress& ip) const noexcept {
  std::byte* const at = message.bytes.data();
  const uint32_t headers = emit_ethernet(at, to, own_.mac, kEtherTypeArp);
  ip::emit_arp(at + headers, {.operation = operation, .sender_mac = own_.mac, .sender = own_.ip, .target_mac = target, .target = ip});
  message.length = headers + ip::kArpBytes;
}

void Neighbours::emit_discovery(Message& message, bool answer, const MacAddress& to, const IpAddress& to_ip, const IpAddress& target,
                                bool solicited) const noexcept {
  std::byte* const at = message.bytes.data();
  const uint32_t ethernet = emit_ethernet(at, to, own_.mac, kEtherTypeIpv6);
  std::byte* const icmp = at + ethernet + kIpv6Bytes;
  const uint32_t length = answer ? ip::emit_neighbour_advertisement(icmp, own_.ip, to_ip, target, own_.mac, solicited, true)
                                 : ip::emit_neighbour_solicitation(icmp, own_.ip, to_ip, target, own_.mac);
  const ip::IpFields fields{.from = own_.ip, .to = to_ip, .protocol = kProtocolIcmp6, .hop_limit = ip::kDiscoveryHops};
  message.length = ethernet + ip::emit_ip_header(at + ethernet, fields, length) + length;
}

}  // namespace unet::drivers
