// splitters.h - the destination rank of a key in a sample sort, by the splitters around it; used by the sample sorts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace unet::kernels {

class Splitters {
 public:
  // Sorts the samples of all ranks and takes `parts` - 1 of them, evenly.
  void choose(std::span<uint32_t> samples, uint32_t parts) {
    std::sort(samples.begin(), samples.end());
    splitters_.clear();
    for (uint64_t part = 1; part < parts; ++part) splitters_.push_back(samples[part * samples.size() / parts]);
    for (uint32_t top = 0; top < kTops; ++top) {
      const uint32_t least = top << kTopShift;
      tops_[top] = {search(least), search(least | ((1u << kTopShift) - 1))};
    }
  }

  // The highest bits decide for nearly every key, so the processor predicts this branch well.
  uint32_t part_of(uint32_t key) const noexcept {
    const Parts parts = tops_[key >> kTopShift];
    return __builtin_expect(parts.first == parts.last, 1) ? parts.first : search(key);
  }

  // Adds the number of keys of each part to `counts`.
  void count(std::span<const uint32_t> keys, std::span<uint64_t> counts) const noexcept {
    for (const uint32_t key : keys) ++counts[part_of(key)];
  }

 private:
  static constexpr uint32_t kTopShift = 21, kTops = 1u << (32 - kTopShift);
  // The parts of the least and the greatest key with the same highest bits.
  struct Parts {
    uint16_t first, last;
  };

  uint16_t search(uint32_t key) const noexcept {
    return static_cast<uint16_t>(std::upper_bound(splitters_.begin(), splitters_.end(), key) - splitters_.begin());
  }

  std::vector<uint32_t> splitters_;   // the least key of each part but the first; a rank fits 16 bits
  std::array<Parts, kTops> tops_{};
};

}  // namespace unet::kernels
