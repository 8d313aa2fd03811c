// peers.cc - Ethernet addresses that stand for IP addresses, and the table of known peers.
#include "drivers/udp/peers.h"

#include <algorithm>

namespace unet::drivers {

MacAddress address_for(const IpAddress& ip) noexcept {
  const uint8_t* const bytes = ip.wire();
  if (ip.is_ipv4()) return {0x02, 0x04, bytes[0], bytes[1], bytes[2], bytes[3]};
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a with a final mix
  for (const uint8_t byte : ip.bytes) hash = (hash ^ byte) * 0x100000001b3;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  MacAddress address{0x06};
  for (size_t i = 1; i < address.size(); ++i) address[i] = static_cast<uint8_t>(hash >> (8 * i + 16));
  return address;
}

std::optional<IpAddress> ip_of(const MacAddress& address) noexcept {
  if (address[0] != 0x02 || address[1] != 0x04) return std::nullopt;
  return ipv4_address(&address[2]);
}

size_t Peers::table_size(uint32_t places) noexcept {
  size_t size = 2;
  while (size < size_t{places} * 2) size *= 2;
  return size;
}

void Peers::insert(uint32_t place) noexcept {
  size_t i = hash(peers_[place].key);
  while (table_[i & (table_.size() - 1)] != kFree) ++i;
  table_[i & (table_.size() - 1)] = place;
}

Peer* Peers::add(const IpAddress& ip, Nanoseconds now) noexcept {
  last_ = nullptr;
  Peer* place = nullptr;
  bool replaced = false;
  if (used_ < peers_.size()) {
    place = &peers_[used_++];
  } else {
    if (now < next_scan_) return nullptr;  // a sender with ever new addresses does not cause endless searches
    next_scan_ = now + kScanEvery;
    for (Peer& peer : peers_) {
      if (!peer.configured && (place == nullptr || peer.used < place->used)) place = &peer;
    }
    if (place == nullptr || now < place->used + kIdle) return nullptr;
    replaced = true;
  }
  *place = {.ip = ip, .address = address_for(ip), .used = now};
  place->key = key_of(place->address);
  if (!replaced) {
    insert(place_of(*place));
    return place;
  }
  std::fill(table_.begin(), table_.end(), kFree);
  for (uint32_t i = 0; i < used_; ++i) insert(i);
  return place;
}

}  // namespace unet::drivers
