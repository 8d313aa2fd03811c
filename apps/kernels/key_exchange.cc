// key_exchange.cc - an exchange of keys from all ranks to all.
#include "apps/kernels/key_exchange.h"

#include <algorithm>

#include "am/splitc/splitc.h"

namespace unet::kernels {

namespace sc = unet::splitc;

KeyExchange::KeyExchange(uint64_t room)
    : room_(std::max<uint64_t>(room, 1)), keys_(sc::all_spread_malloc<uint32_t>(sc::procs(), room_)),
      counts_(sc::all_spread_malloc<uint64_t>(sc::procs(), uint64_t{sc::procs()} * sc::procs())), sent_(sc::procs()),
      grouped_(sc::procs()), places_(sc::procs()), begins_(sc::procs()), received_(sc::procs()) {}

KeyExchange::~KeyExchange() {
  sc::all_spread_free(counts_);
  sc::all_spread_free(keys_);
}

void KeyExchange::forget() {
  const std::span<uint32_t> keys = keys_.mine(0);
  std::fill(keys.begin(), keys.end(), ~0u);
}

// Only this function reads the counts of others: once all have called collect(), the fastest rank may announce the next ones.
void KeyExchange::announce(std::span<const uint64_t> counts, uint64_t unit) {
  const uint32_t procs = sc::procs();
  const sc::Rank me = sc::my_proc();
  sc::all_bulk_gather(counts_, counts);
  const uint64_t* const all = counts_.mine(0).data();
  std::copy(counts.begin(), counts.end(), sent_.begin());
  uint64_t largest = 0;
  for (sc::Rank to = 0; to < procs; ++to) {
    uint64_t at = 0;
    for (sc::Rank from = 0; from < procs; ++from) {
      const uint64_t keys = all[uint64_t{from} * procs + to];
      if (from == me) places_[to] = at;
      if (to == me) begins_[from] = at;
      at += (keys + unit - 1) & ~(unit - 1);
    }
    largest = std::max(largest, at);
  }
  total_ = 0;
  for (sc::Rank from = 0; from < procs; ++from) total_ += received_[from] = all[uint64_t{from} * procs + me];
  make_room(largest);
}

// All ranks have the same counts, so either all call this or none.
void KeyExchange::make_room(uint64_t keys) {
  if (keys <= room_) return;
  sc::all_spread_free(keys_);
  room_ = keys + keys / 8;
  keys_ = sc::all_spread_malloc<uint32_t>(sc::procs(), room_);
}

std::span<uint32_t* const> KeyExchange::group_at(std::span<uint32_t> others) {
  uint32_t* next = others.data();
  for (sc::Rank to = 0; to < sc::procs(); ++to) {
    if (to == sc::my_proc()) {
      grouped_[to] = keys_.mine(0).data() + places_[to];
    } else {
      grouped_[to] = next;
      next += sent_[to];
    }
  }
  return grouped_;
}

void KeyExchange::store() {
  const uint32_t procs = sc::procs();
  // Each rank begins with its neighbour, so that not all store to the same rank.
  for (uint32_t distance = 1; distance < procs; ++distance) {
    const sc::Rank to = (sc::my_proc() + distance) % procs;
    sc::bulk_store(place(to), grouped_[to], sent_[to]);
  }
}

void KeyExchange::collect() { sc::all_store_sync(); }

}  // namespace unet::kernels
