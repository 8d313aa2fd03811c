// clock.h - the clock of flows; used by Endpoint and Bundle.
#pragma once

#include "unet/base/time.h"

namespace unet::am {

// Returns nanoseconds by the cycle counter since the first call in this process; that call takes 2 ms. Reading it takes half as long as
// CLOCK_MONOTONIC, which matters because each packet reads it three times. Its rate is off by up to 1 in 10,000, so compare it only with
// itself.
inline Nanoseconds flow_now() noexcept {
  static const Clock clock;
  return clock.now();
}

}  // namespace unet::am
