// key_exchange.h - every rank sends keys to every other; used by the sample sorts and by IS. A sender knows in advance where its keys go,
// so it may send one message per rank, or many small ones.
//
//   announce(counts)    all ranks learn all counts of keys, and make room
//   place(d), store()   this rank's keys go to its place at rank d, by any kind of store
//   collect()           all keys are there; received(s) are those of rank s
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "am/splitc/spread.h"

namespace unet::kernels {

class KeyExchange {
 public:
  // Collective. `room`: number of keys that a rank expects; it grows if more come.
  explicit KeyExchange(uint64_t room);
  // Collective.
  ~KeyExchange();
  KeyExchange(const KeyExchange&) = delete;
  KeyExchange& operator=(const KeyExchange&) = delete;

  // Overwrites the received keys, so that a rank that reads too early notices. Call it before a barrier, and that before announce().
  void forget();
  // Collective: `counts[d]` keys go to rank d. The keys of each sender take a multiple of `unit` keys of room; `unit` is a power of two.
  void announce(std::span<const uint64_t> counts, uint64_t unit = 1);
  splitc::Global<uint32_t> place(splitc::Rank to) const { return keys_.on(to) + static_cast<int64_t>(places_[to]); }
  // Returns where to put the keys for each rank: this rank's own in their final place, those of others one after another in `others`, which
  // must live until store() has returned.
  std::span<uint32_t* const> group_at(std::span<uint32_t> others);
  // Stores the keys that were put there.
  void store();
  // Collective.
  void collect();
  std::span<uint32_t> received(splitc::Rank from) const { return {keys_.mine(0).data() + begins_[from], received_[from]}; }
  // Returns the keys of all ranks, which are contiguous if `unit` is 1.
  std::span<uint32_t> received() const { return {keys_.mine(0).data(), total_}; }

 private:
  void make_room(uint64_t keys);

  uint64_t room_;
  splitc::Spread<uint32_t> keys_;
  splitc::Spread<uint64_t> counts_;   // counts[s * P + d], at every rank
  std::vector<uint64_t> sent_;        // by rank
  std::vector<uint32_t*> grouped_;    // by rank: beginning of its keys in this rank's memory
  std::vector<uint64_t> places_;      // by rank: beginning of this rank's keys there
  std::vector<uint64_t> begins_;      // by rank: beginning of its keys here
  std::vector<uint64_t> received_;    // by rank
  uint64_t total_ = 0;
};

}  // namespace unet::kernels
