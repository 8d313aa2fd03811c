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

// How far `to` is ahead of `from`; more than 2^31 if it is behind.
constexpr uint32_t distance(Sequence from, Sequence to) noexcept { return to.value - from.value; }
// `a` is older than `b`, if they are less than 2^31 apart (RFC 1982, section 3.2).
constexpr bool before(Sequence a, Sequence b) noexcept { return static_cast<int32_t>(a.value - b.value) < 0; }

}  // namespace unet::am
