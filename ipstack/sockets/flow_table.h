// flow_table.h - finds a segment's connection by both addresses and ports; used by the stack.
//
// Open addressing with linear probing, at most half full. A removal moves later items forward, so it leaves no marker. The hash is keyed,
// so remote hosts cannot choose ports that collide.
#pragma once

#include <cstdint>
#include <vector>

#include "ipstack/sockets/keyed_hash.h"

namespace unet::sockets {

class FlowTable {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  explicit FlowTable(const HashKey& key) : key_(key), slots_(kLeast) {}

  // A hash that is cheaper than SipHash, as it is computed for each packet. Without the key, no remote host can find ports that collide.
  uint32_t hash(const Address& local, const Address& remote) const noexcept {
    uint64_t near[2], far[2];
    std::memcpy(near, local.host.bytes.data(), 16);
    std::memcpy(far, remote.host.bytes.data(), 16);
    const uint64_t ports = uint64_t{local.port} << 16 | remote.port;
    uint64_t mixed = fold(near[0] ^ key_.first, near[1] ^ key_.second);
    mixed = fold(mixed ^ far[0], far[1] ^ key_.first);
    return static_cast<uint32_t>(fold(mixed ^ ports, key_.second));
  }

  // `same(item)`: whether this is the item.
  template <typename Same>
  uint32_t find(uint32_t hash, Same same) const noexcept {
    for (uint32_t at = hash & mask(); slots_[at].item != kNone; at = (at + 1) & mask()) {
      if (slots_[at].hash == hash && same(slots_[at].item)) return slots_[at].item;
    }
    return kNone;
  }
  void insert(uint32_t hash, uint32_t item) {
    if (++count_ > slots_.size() / 2) grow();
    place({hash, item});
  }
  void remove(uint32_t hash, uint32_t item) noexcept {
    uint32_t hole = hash & mask();
    while (slots_[hole].item != item) {
      if (slots_[hole].item == kNone) return;
      hole = (hole + 1) & mask();
    }
    --count_;
    for (uint32_t at = (hole + 1) & mask(); slots_[at].item != kNone; at = (at + 1) & mask()) {
      // An item may move to the hole unless its hash's place lies between the hole and the item.
      if (((at - (slots_[at].hash & mask())) & mask()) < ((at - hole) & mask())) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
  }
  uint32_t size() const noexcept { return count_; }

 private:
  static constexpr uint32_t kLeast = 64;
  struct Slot {
    uint32_t hash = 0;
    uint32_t item = kNone;
  };

  static uint64_t fold(uint64_t a, uint64_t b) noexcept {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  uint32_t mask() const noexcept { return static_cast<uint32_t>(slots_.size()) - 1; }
  void place(const Slot& slot) noexcept {
    uint32_t at = slot.hash & mask();
    while (slots_[at].item != kNone) at = (at + 1) & mask();
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> before(slots_.size() * 2);
    before.swap(slots_);
    for (const Slot& each : before) {
      if (each.item != kNone) place(each);
    }
  }

  const HashKey key_;
  std::vector<Slot> slots_;
  uint32_t count_ = 0;
};

}  // namespace unet::sockets
