// neighbours.cc - questions and answers of ARP and neighbour discovery.
#include "drivers/udp/neighbours.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "drivers/udp/peers.h"

namespace unet::drivers {
namespace {

constexpr uint16_t kEtherTypeArp = 0x0806;
constexpr uint32_t kEthernetBytes = sizeof(EthernetHeader);
constexpr uint32_t kArpBytes = 28;
constexpr uint16_t kArpRequest = 1, kArpReply = 2;
constexpr uint8_t kSolicitation = 135, kAdvertisement = 136;
constexpr uint32_t kDiscoveryBytes = 24;  // ICMPv6 header and target
constexpr uint32_t kOptionBytes = 8;      // a link-layer address
constexpr uint8_t kOptionSource = 1, kOptionTarget = 2;
constexpr MacAddress kNobody{};
constexpr uint32_t kFree = ~uint32_t{0};

uint8_t octet(const std::byte* at) noexcept { return std::to_integer<uint8_t>(*at); }
uint16_t read16(const std::byte* at) noexcept { return static_cast<uint16_t>(octet(at) << 8 | octet(at + 1)); }
void write16(std::byte* at, uint32_t value) noexcept {
  at[0] = static_cast<std::byte>(value >> 8);
  at[1] = static_cast<std::byte>(value);
}
void put(std::byte* at, const void* bytes, size_t length) noexcept { std::memcpy(at, bytes, length); }

MacAddress read_mac(const std::byte* at) noexcept {
  MacAddress mac;
  std::memcpy(mac.data(), at, mac.size());
  return mac;
}
IpAddress read_ipv4(const std::byte* at) noexcept { return ipv4_address(reinterpret_cast<const uint8_t*>(at)); }
IpAddress read_ipv6(const std::byte* at) noexcept { return ipv6_address(reinterpret_cast<const uint8_t*>(at)); }

bool unicast(const MacAddress& mac) noexcept { return (mac[0] & 1) == 0 && mac != kNobody; }

// ff02::1:ffXX:XXXX, and the group of stations that hears it.
IpAddress solicited_node(const IpAddress& of) noexcept {
  IpAddress group{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0}};
  std::copy(of.bytes.begin() + 13, of.bytes.end(), group.bytes.begin() + 13);
  return group;
}
MacAddress group_mac(const IpAddress& group) noexcept {
  return {0x33, 0x33, group.bytes[12], group.bytes[13], group.bytes[14], group.bytes[15]};
}
constexpr IpAddress kAllNodes{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

// The link-layer address among the options, if they are well formed and have one.
std::optional<MacAddress> find_option(Bytes options, uint8_t type) noexcept {
  std::optional<MacAddress> found;
  while (!options.empty()) {
    if (options.size() < kOptionBytes) return std::nullopt;
    const size_t length = size_t{octet(&options[1])} * 8;
    if (length == 0 || length > options.size()) return std::nullopt;
    if (octet(&options[0]) == type && length == kOptionBytes) found = read_mac(&options[2]);
    options = options.subspan(length);
  }
  return found;
}

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
  if (cursor_ != 0) next_pass_ = std::min(next_pass_, place.next);  // the pass under way may be beyond it
}

bool Neighbours::handle(Bytes frame, Nanoseconds now, Message& reply, std::optional<uint32_t>& changed) noexcept {
  reply.length = 0;
  if (frame.size() < kEthernetBytes) return false;
  const uint16_t type = read16(frame.data() + 12);
  if (own_.ip.is_ipv4()) return type == kEtherTypeArp && handle_arp(frame, now, reply, changed);
  return type == kEtherTypeIpv6 && handle_discovery(frame, now, reply, changed);
}

// A neighbour that is not asked for is not learned: everybody could fill the table.
std::optional<uint32_t> Neighbours::learn(const IpAddress& ip, const MacAddress& mac, Nanoseconds now, bool answer) noexcept {
  std::optional<uint32_t> changed;
  for (size_t i = hash(ip);; ++i) {
    const uint32_t found = table_[i & (table_.size() - 1)];
    if (found == kFree) return changed;
    Place& place = places_[found];
    if (!(place.ip == ip) || place.fixed) continue;  // the gateway may be a peer, too: two places
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

bool Neighbours::handle_arp(Bytes frame, Nanoseconds now, Message& reply, std::optional<uint32_t>& changed) noexcept {
  constexpr std::array<uint8_t, 6> kEthernetForIpv4{0, 1, 0x08, 0x00, 6, 4};
  if (frame.size() < kEthernetBytes + kArpBytes) return false;
  const std::byte* const arp = frame.data() + kEthernetBytes;
  if (std::memcmp(arp, kEthernetForIpv4.data(), kEthernetForIpv4.size()) != 0) return false;
  const uint16_t operation = read16(arp + 6);
  const MacAddress sender = read_mac(arp + 8);
  const IpAddress sender_ip = read_ipv4(arp + 14);
  const IpAddress target_ip = read_ipv4(arp + 24);
  if (!unicast(sender) || sender_ip == own_.ip) return false;
  if (operation == kArpReply && !(target_ip == own_.ip)) return false;
  if (operation != kArpRequest && operation != kArpReply) return false;
  changed = learn(sender_ip, sender, now, operation == kArpReply);
  if (operation == kArpRequest && target_ip == own_.ip) {
    emit_arp(reply, kArpReply, sender, sender, sender_ip);
    ++answered_;
  }
  return true;
}

bool Neighbours::handle_discovery(Bytes frame, Nanoseconds now, Message& reply, std::optional<uint32_t>& changed) noexcept {
  if (frame.size() < kEthernetBytes + kIpv6Bytes + kDiscoveryBytes) return false;
  const std::byte* const ip = frame.data() + kEthernetBytes;
  const uint32_t length = read16(ip + 4);
  if ((octet(ip) & 0xF0) != 0x60 || octet(ip + 6) != kProtocolIcmp6 || octet(ip + 7) != 255) return false;
  if (length < kDiscoveryBytes || length > frame.size() - kEthernetBytes - kIpv6Bytes) return false;
  const std::byte* const icmp = ip + kIpv6Bytes;
  const uint8_t type = octet(icmp);
  if ((type != kSolicitation && type != kAdvertisement) || octet(icmp + 1) != 0) return false;
  const uint64_t sum = checksum_add16(checksum_add16(checksum_add(0, ip + 8, 32), kProtocolIcmp6), static_cast<uint16_t>(length));
  if (checksum_fold(checksum_add(sum, icmp, length)) != 0) return false;
  const IpAddress from = read_ipv6(ip + 8);
  const IpAddress target = read_ipv6(icmp + 8);
  const Bytes options(icmp + kDiscoveryBytes, length - kDiscoveryBytes);
  if (type == kAdvertisement) {
    const std::optional<MacAddress> mac = find_option(options, kOptionTarget);
    if (!mac || !unicast(*mac) || target == own_.ip) return false;
    changed = learn(target, *mac, now, true);
    return true;
  }
  const std::optional<MacAddress> mac = find_option(options, kOptionSource);
  const bool unspecified = from == IpAddress{};  // somebody asks whether the address is free
  if ((!unspecified && from.bytes[0] == 0xff) || (mac && !unicast(*mac))) return false;
  if (mac && !unspecified) changed = learn(from, *mac, now, false);
  if (!(target == own_.ip)) return true;
  const MacAddress asker = mac ? *mac : read_mac(frame.data() + 6);
  if (unspecified) emit_discovery(reply, true, group_mac(kAllNodes), kAllNodes, own_.ip, false);
  else if (unicast(asker)) emit_discovery(reply, true, asker, from, own_.ip, true);
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
      // Known stays known until somebody sends there again, which asks at once.
      place.next = ~Nanoseconds{0};
      place.asked = 0;
      continue;
    }
    emit_question(question, place);
    // One that is known has time: a machine that is busy for less than a second stays known.
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
  if (own_.ip.is_ipv4()) return emit_arp(question, kArpRequest, direct ? place.mac : kBroadcast, kNobody, place.ip);
  const IpAddress group = solicited_node(place.ip);
  emit_discovery(question, false, direct ? place.mac : group_mac(group), direct ? place.ip : group, place.ip, false);
}

void Neighbours::emit_arp(Message& message, uint16_t operation, const MacAddress& to, const MacAddress& target,
                          const IpAddress& ip) const noexcept {
  std::byte* const at = message.bytes.data();
  put(at, to.data(), 6);
  put(at + 6, own_.mac.data(), 6);
  write16(at + 12, kEtherTypeArp);
  std::byte* const arp = at + kEthernetBytes;
  write16(arp, 1);
  write16(arp + 2, kEtherTypeIpv4);
  write16(arp + 4, 0x0604);
  write16(arp + 6, operation);
  put(arp + 8, own_.mac.data(), 6);
  put(arp + 14, own_.ip.wire(), 4);
  put(arp + 18, target.data(), 6);
  put(arp + 24, ip.wire(), 4);
  message.length = kEthernetBytes + kArpBytes;
}

void Neighbours::emit_discovery(Message& message, bool answer, const MacAddress& to, const IpAddress& to_ip, const IpAddress& target,
                                bool solicited) const noexcept {
  message.bytes = {};
  std::byte* const at = message.bytes.data();
  put(at, to.data(), 6);
  put(at + 6, own_.mac.data(), 6);
  write16(at + 12, kEtherTypeIpv6);
  std::byte* const ip = at + kEthernetBytes;
  constexpr uint32_t kLength = kDiscoveryBytes + kOptionBytes;
  ip[0] = std::byte{0x60};
  write16(ip + 4, kLength);
  ip[6] = std::byte{kProtocolIcmp6};
  ip[7] = std::byte{255};
  put(ip + 8, own_.ip.wire(), 16);
  put(ip + 24, to_ip.bytes.data(), 16);
  std::byte* const icmp = ip + kIpv6Bytes;
  icmp[0] = std::byte{answer ? kAdvertisement : kSolicitation};
  if (answer) icmp[4] = std::byte{static_cast<uint8_t>(0x20 | (solicited ? 0x40 : 0))};  // override, solicited
  put(icmp + 8, target.bytes.data(), 16);
  icmp[kDiscoveryBytes] = std::byte{answer ? kOptionTarget : kOptionSource};
  icmp[kDiscoveryBytes + 1] = std::byte{1};
  put(icmp + kDiscoveryBytes + 2, own_.mac.data(), 6);
  const uint64_t sum = checksum_add16(checksum_add16(checksum_add(0, ip + 8, 32), kProtocolIcmp6), kLength);
  const uint16_t checksum = checksum_fold(checksum_add(sum, icmp, kLength));
  put(icmp + 2, &checksum, sizeof checksum);
  message.length = kEthernetBytes + kIpv6Bytes + kLength;
}

}  // namespace unet::drivers
