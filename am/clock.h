// clock.h - what time it is for flows; used by Endpoint and Bundle.
#pragma once

#include "unet/base/time.h"

namespace unet::am {

// Nanoseconds by the cycle counter, since the first call in this process, which takes 2 ms. Half as long to read as CLOCK_MONOTONIC, which
// matters where each packet asks three times; it goes up to 1 in 10,000 fast or slow, so it is compared with nothing but itself.
inline Nanoseconds flow_now() noexcept {
  static const Clock clock;
  return clock.now();
}

}  // namespace unet::am
