// time.cc - calibration of the cycle counter.
#include "unet/base/time.h"

#include <ctime>

namespace unet {

Nanoseconds monotonic_now() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<Nanoseconds>(t.tv_sec) * kSecond + static_cast<Nanoseconds>(t.tv_nsec);
}

uint32_t wall_sixteenths() noexcept {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<uint32_t>(static_cast<uint64_t>(t.tv_sec) * 16 + static_cast<uint64_t>(t.tv_nsec) / 62'500'000);
}

namespace {

double measure_cycles_per_second() noexcept {
  // The shortest of three windows: an interrupt inside a window can only lengthen the distance between the two reads.
  double best = 0;
  Nanoseconds best_length = ~Nanoseconds{0};
  for (int i = 0; i < 3; ++i) {
    const Nanoseconds t0 = monotonic_now();
    const uint64_t c0 = cycles();
    Nanoseconds t1 = t0;
    while (t1 - t0 < 3 * kMillisecond) t1 = monotonic_now();
    const uint64_t c1 = cycles();
    if (t1 - t0 < best_length) {
      best_length = t1 - t0;
      best = static_cast<double>(c1 - c0) * 1e9 / static_cast<double>(t1 - t0);
    }
  }
  return best;
}

}  // namespace

double cycles_per_second() noexcept {
  static const double value = measure_cycles_per_second();
  return value;
}

}  // namespace unet
