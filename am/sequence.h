// sequence.h - the number of a packet in one direction of a flow: 32 bits that wrap; used by all of am/.
#pragma once

#include <cstdint>

namespace unet::am {

struct Sequence {
  uint32_t value = 0;

  constexpr Sequence operator+(uint32_t count) const noexcept { return {value + count}; }
  constexpr Sequence& operator++() noexcept {
    ++value;
    return *this;
  }
  constexpr bool operator==(const Sequence&) const noexcept = default;
};

// Compares on a circle of 2^32, for numbers less than half of it apart (RFC 1982, section 3.2). Also used for counts and clocks.
constexpr bool newer(uint32_t a, uint32_t b) noexcept { return static_cast<int32_t>(a - b) > 0; }

// Returns how far `to` is ahead of `from`; more than 2^31 if it is behind.
constexpr uint32_t distance(Sequence from, Sequence to) noexcept { return to.value - from.value; }
constexpr bool before(Sequence a, Sequence b) noexcept { return newer(b.value, a.value); }

}  // namespace unet::am
