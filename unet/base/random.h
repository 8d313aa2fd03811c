// random.h - pseudo-random numbers that spread hosts, entries and probes in time, from the seed of the caller; used by ipstack.
#pragma once

#include <cstdint>

namespace unet {

// SplitMix64 (Steele, Lea, Flood, 2014): any seed is good, and neighbouring seeds give independent sequences.
inline uint64_t next_random(uint64_t& state) noexcept {
  state += 0x9E3779B97F4A7C15u;
  uint64_t mixed = (state ^ state >> 30) * 0xBF58476D1CE4E5B9u;
  mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
  return mixed ^ mixed >> 31;
}

}  // namespace unet
