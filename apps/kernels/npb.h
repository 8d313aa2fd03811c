// npb.h - the random numbers of the NAS Parallel Benchmarks; used by npb_is and npb_cg.
//
// NAS Parallel Benchmarks, NASA Ames, RNR-94-007 and NAS-99-011: x(k+1) = 5^13 x(k) mod 2^46, and x / 2^46 is a number of (0, 1).
#pragma once

#include <cstdint>

namespace unet::kernels {

class NpbRandom {
 public:
  static constexpr uint32_t kBits = 46;

  // Returns the next 46 bits.
  constexpr uint64_t next_bits() noexcept { return state_ = state_ * kFactor & kMask; }
  constexpr double next() noexcept { return static_cast<double>(next_bits()) * 0x1p-46; }
  // Has the effect of `count` calls of next().
  constexpr void skip(uint64_t count) noexcept {
    for (uint64_t power = kFactor; count != 0; count >>= 1, power = power * power & kMask) {
      if ((count & 1) != 0) state_ = state_ * power & kMask;
    }
  }

 private:
  static constexpr uint64_t kFactor = 1220703125, kMask = (uint64_t{1} << kBits) - 1;
  uint64_t state_ = 314159265;
};

}  // namespace unet::kernels
