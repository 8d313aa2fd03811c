// peers.h - the NIs that are reached over UDP: the Ethernet address that stands for each inside this NI, and its headers; used by
// the udp wrapper.
//
// The engine knows NIs by Ethernet addresses. 02:04:a:b:c:d stands for a.b.c.d, 06 and 40 bits of a hash for an IPv6 address. Such an
// address is the same in every NI and each of its lives. Two IPv6 addresses of one hash: the one that is known first stays, the
// other one is refused; configured peers are the first of all.
#pragma once

#include <optional>
#include <vector>

#include "drivers/udp/datagram.h"
#include "unet/base/time.h"

namespace unet::drivers {

MacAddress address_for(const IpAddress& ip) noexcept;
// The other way round, where it is possible.
std::optional<IpAddress> ip_of(const MacAddress& address) noexcept;

// An odd number made of an address, which the kernel chooses at random for each process.
inline uint64_t index_multiplier(uint64_t address) noexcept {
  uint64_t z = address * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 31)) * 0xbf58476d1ce4e5b9;
  return (z ^ (z >> 29)) | 1;
}

struct Peer {
  uint64_t key = 0;            // address_for(ip) as a number; 0: the place is free
  IpAddress ip{};
  MacAddress address{};
  uint32_t neighbour = 0;      // place of the next hop
  bool configured = false;
  Nanoseconds used = 0;        // last, in either direction
  Nanoseconds next_tell = 0;   // with several queues: when the others may be told again that it signals
  DatagramTemplate headers;
};

class Peers {
 public:
  static constexpr Nanoseconds kIdle = 30 * kSecond;  // after which a learned peer makes room for another
  static constexpr Nanoseconds kScanEvery = 100 * kMillisecond;  // a full table is searched for such a one no more often

  // Peers that are learned fill what configured ones leave of `places`.
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
  // A place for a peer that find() does not know; nullptr: all are taken by peers that are in use. `now` may be 0.
  Peer* add(const IpAddress& ip, Nanoseconds now) noexcept;

  std::vector<Peer>& all() noexcept { return peers_; }
  uint32_t place_of(const Peer& peer) const noexcept { return static_cast<uint32_t>(&peer - peers_.data()); }
  uint32_t used() const noexcept { return used_; }

 private:
  static constexpr uint32_t kFree = ~uint32_t{0};
  static size_t table_size(uint32_t places) noexcept;
  // Multiplied by a number that nobody outside knows: addresses cannot be chosen so that they meet in one place of the table.
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
