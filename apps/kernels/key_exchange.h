// key_exchange.h - every rank sends keys to every other, each at once knowing where: by one message per rank, or by many small ones; used
// by the sample sorts and by IS.
//
//   announce(counts)    all ranks learn how many keys go from whom to whom, and make room
//   place(d), store()   this rank's keys go to its place at rank d, by whatever stores
//   collect()           all are there; received(s) are those of rank s
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "am/splitc/spread.h"

namespace unet::kernels {

class KeyExchange {
 public:
  // Collective. `room`: keys that a rank is expected to receive; more make it grow.
  explicit KeyExchange(uint64_t room);
  // Collective.
  ~KeyExchange();
  KeyExchange(const KeyExchange&) = delete;
  KeyExchange& operator=(const KeyExchange&) = delete;

  // What has been received is not there any more: whoever looks too early sees that. Before a barrier, and that before announce().
  void forget();
  // Collective. `counts[d]` keys go to rank d. What comes of a rank takes a multiple of `unit` keys of room, a power of two.
  void announce(std::span<const uint64_t> counts, uint64_t unit = 1);
  splitc::Global<uint32_t> place(splitc::Rank to) const { return keys_.on(to) + static_cast<int64_t>(places_[to]); }
  // Where the caller puts the keys of each rank: its own where they stay, those of others one after another into `others`, which has
  // room for them until store() has returned.
  std::span<uint32_t* const> group_at(std::span<uint32_t> others);
  // Stores what was grouped so.
  void store();
  // Collective.
  void collect();
  std::span<uint32_t> received(splitc::Rank from) const { return {keys_.mine(0).data() + begins_[from], received_[from]}; }
  // Of all ranks; they lie together if `unit` is 1.
  std::span<uint32_t> received() const { return {keys_.mine(0).data(), total_}; }

 private:
  void make_room(uint64_t keys);

  uint64_t room_;
  splitc::Spread<uint32_t> keys_;
  splitc::Spread<uint64_t> counts_;   // counts[s * P + d], at every rank
  std::vector<uint64_t> sent_;        // by rank
  std::vector<uint32_t*> grouped_;    // by rank: where its keys begin in this rank's memory
  std::vector<uint64_t> places_;      // by rank: where this rank's keys begin there
  std::vector<uint64_t> begins_;      // by rank: where its keys begin here
  std::vector<uint64_t> received_;    // by rank
  uint64_t total_ = 0;
};

}  // namespace unet::kernels
