// peers.h - the NIs reached over UDP: for each its Ethernet address inside this NI, and its headers; used by the udp wrapper.
//
// The engine knows NIs by Ethernet addresses. 02:04:a:b:c:d stands for a.b.c.d; 06 and 40 bits of a hash stand for an IPv6 address. These
// addresses are the same in all NIs and after restarts. If two IPv6 addresses have the same hash, the one that was known first stays and
// the other is refused. Configured peers are known before all others.
#pragma once

#include <optional>
#include <vector>

#include "drivers/udp/datagram.h"
#include "unet/base/time.h"

namespace unet::drivers {

MacAddress address_for(const IpAddress& ip) noexcept;
// The reverse mapping, which exists for IPv4 only.
std::optional<IpAddress> ip_of(const MacAddress& address) noexcept;

// Makes an odd number from an address, which the kernel randomises for each process.
inline uint64_t index_multiplier(uint64_t address) noexcept {
  uint64_t z = address * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 31)) * 0xbf58476d1ce4e5b9;
  return (z ^ (z >> 29)) | 1;
}

struct Peer {
  uint64_t key = 0;            // address_for(ip) as a number; 0: the place is free
  IpAddress ip{};
  MacAddress address{};
  uint32_t neighbour = 0;      // place of the next hop in Neighbours
  bool configured = false;
  Nanoseconds used = 0;        // time of the last frame in either direction
  Nanoseconds next_tell = 0;   // with several queues: when to announce to the others again that it signals
  DatagramTemplate headers;
};

class Peers {
 public:
  static constexpr Nanoseconds kIdle = 30 * kSecond;  // a learned peer that is idle for longer makes room for another
  static constexpr Nanoseconds kScanEvery = 100 * kMillisecond;  // minimum time between searches of a full table for such a peer

  // Learned peers use the places that configured ones leave.
  explicit Peers(uint32_t places)
      : peers_(places), table_(table_size(places), kFree), multiplier_(index_multiplier(reinterpret_cast<uintptr_t>(table_.data()))) {}

  static uint64_t key_of(const MacAddress& address) noexcept {
    uint64_t key = 0;
    std::memcpy(&key, address.data(), address.size());
    return key;
  }
  Peer* find(uint64_t key) noexcept {
    if (last_ != nullptr && last_->key == key) return last_;
    for (size_t i = hash(key);; ++i) {
      const uint32_t place = table_[i & (table_.size() - 1)];
      if (place == kFree) return nullptr;
      if (peers_[place].key == key) return last_ = &peers_[place];
    }
  }
  // Takes a place for a peer that find() does not know; nullptr if peers in use occupy all of them. `now` may be 0.
  Peer* add(const IpAddress& ip, Nanoseconds now) noexcept;

  std::vector<Peer>& all() noexcept { return peers_; }
  uint32_t place_of(const Peer& peer) const noexcept { return static_cast<uint32_t>(&peer - peers_.data()); }
  uint32_t used() const noexcept { return used_; }

 private:
  static constexpr uint32_t kFree = ~uint32_t{0};
  static size_t table_size(uint32_t places) noexcept;
  // The multiplier is secret, so no attacker can choose addresses that collide in the table.
  size_t hash(uint64_t key) const noexcept { return static_cast<size_t>((key * multiplier_) >> 40); }
  void insert(uint32_t place) noexcept;

  std::vector<Peer> peers_;
  std::vector<uint32_t> table_;  // places by key, with linear probing; at most half full
  const uint64_t multiplier_;
  Peer* last_ = nullptr;
  uint32_t used_ = 0;
  Nanoseconds next_scan_ = 0;
};

}  // namespace unet::drivers
