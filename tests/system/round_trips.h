// round_trips.h - a histogram of round-trip times in shared memory, with classes of a few per cent; for system tests that print it.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "unet/base/time.h"

namespace unet {

class RoundTrips {
 public:
  void add(Nanoseconds time) { classes_[class_of(time)].fetch_add(1, std::memory_order_relaxed); }

  // The given percentile; 0 without any round trips.
  Nanoseconds at(double percent) const {
    const auto wanted = static_cast<uint64_t>(static_cast<double>(count()) * percent / 100);
    uint64_t seen = 0;
    for (size_t i = 0; i < kClasses; ++i) {
      seen += classes_[i].load(std::memory_order_relaxed);
      if (seen > wanted) return end_of(i);
    }
    return 0;
  }
  uint64_t count() const {
    uint64_t all = 0;
    for (const auto& each : classes_) all += each.load(std::memory_order_relaxed);
    return all;
  }

 private:
  // Sixteen classes for each power of two.
  static constexpr size_t kPerDoubling = 16, kClasses = 64 * kPerDoubling;

  static size_t class_of(Nanoseconds time) {
    if (time < kPerDoubling) return static_cast<size_t>(time);
    const auto power = static_cast<size_t>(std::bit_width(time)) - 5;  // 16 to 31 units
    return (power + 1) * kPerDoubling + static_cast<size_t>((time >> power) - kPerDoubling);
  }
  static Nanoseconds end_of(size_t which) {
    if (which < kPerDoubling) return which;
    const size_t power = which / kPerDoubling - 1;
    return (which % kPerDoubling + kPerDoubling + 1) << power;
  }

  std::array<std::atomic<uint64_t>, kClasses> classes_{};
};

}  // namespace unet
