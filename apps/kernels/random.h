// random.h - random numbers by index: any rank makes any of them, so each knows the whole input without messages; used by the kernels.
#pragma once

#include <cstdint>

namespace unet::kernels {

// Returns number `index` of the sequence of `seed` (SplitMix64: Steele, Lea and Flood 2014).
constexpr uint64_t random_bits(uint64_t seed, uint64_t index) noexcept {
  uint64_t bits = seed * 0xD1B54A32D192ED03 + (index + 1) * 0x9E3779B97F4A7C15;
  bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ bits >> 27) * 0x94D049BB133111EB;
  return bits ^ bits >> 31;
}

// Returns it as a number of [0, 1).
constexpr double random_unit(uint64_t seed, uint64_t index) noexcept {
  return static_cast<double>(random_bits(seed, index) >> 11) * 0x1p-53;
}

}  // namespace unet::kernels
