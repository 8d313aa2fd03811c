// sort_keys.h - the input of the sorts, and a check of their result; used by the sample sorts and the radix sorts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/kernels/random.h"

namespace unet::kernels {

constexpr uint64_t kSortKeys = uint64_t{4} << 20;      // the paper's 4 M
constexpr uint64_t kSortKeysMax = uint64_t{1} << 31;   // a rank's positions of keys fit 32 bits

constexpr uint32_t sort_key(uint64_t seed, uint64_t index) noexcept { return static_cast<uint32_t>(random_bits(seed, index) >> 32); }

// Sets `keys` to the input from key number `first` on.
inline void fill_keys(std::span<uint32_t> keys, uint64_t first, uint64_t seed) noexcept {
  for (uint64_t i = 0; i < keys.size(); ++i) keys[i] = sort_key(seed, first + i);
}

// The keys as one process sorts them, when first needed.
class SortedKeys {
 public:
  SortedKeys(uint64_t count, uint64_t seed) noexcept : count_(count), seed_(seed) {}

  // Counts the elements of `own` that are not the sorted keys from number `first` on.
  uint64_t count_wrong(std::span<const uint32_t> own, uint64_t first) {
    if (keys_.empty()) sort();
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < own.size(); ++i) wrong += first + i >= count_ || own[i] != keys_[first + i] ? 1 : 0;
    return wrong;
  }

 private:
  void sort() {
    keys_.resize(count_);
    fill_keys(keys_, 0, seed_);
    std::sort(keys_.begin(), keys_.end());
  }

  uint64_t count_, seed_;
  std::vector<uint32_t> keys_;
};

}  // namespace unet::kernels
