// time.cc - calibrates the cycle counter.
#include "unet/base/time.h"

#include <ctime>

namespace unet {

Nanoseconds monotonic_now() noexcept { return read_clock(CLOCK_MONOTONIC); }

Nanoseconds wall_now() noexcept { return read_clock(CLOCK_REALTIME); }

uint32_t wall_sixteenths() noexcept { return static_cast<uint32_t>(wall_now() / (kSecond / 16)); }

namespace {

// A reading of both clocks at one instant.
struct Instant {
  Nanoseconds time = 0;
  uint64_t cycle = 0;  // the middle of the counter's values before and after the time was read
};

// Takes the most precise of several readings: an interrupted one takes longer.
Instant instant() noexcept {
  Instant best;
  uint64_t closest = ~uint64_t{0};
  for (int i = 0; i < 16; ++i) {
    const uint64_t before = cycles();
    const Nanoseconds time = monotonic_now();
    const uint64_t took = cycles() - before;
    if (took >= closest) continue;
    closest = took;
    best = {time, before + took / 2};
  }
  return best;
}

double measure_cycles_per_second() noexcept {
  const Instant start = instant();
  while (monotonic_now() - start.time < 2 * kMillisecond) spin_pause();
  const Instant end = instant();
  return static_cast<double>(end.cycle - start.cycle) * 1e9 / static_cast<double>(end.time - start.time);
}

}  // namespace

double cycles_per_second() noexcept {
  static const double value = measure_cycles_per_second();
  return value;
}

}  // namespace unet
