// takeover_records.h - how values of the journal's records are written and checked; used by what saves and restores them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ni/service/requests.h"
#include "unet/base/time.h"

namespace unet::service {

// Records have times of CLOCK_MONOTONIC: the time of each service begins with itself.
inline uint64_t monotonic_of(Nanoseconds at, Nanoseconds now) { return at - now + monotonic_now(); }

inline Nanoseconds time_left(uint64_t monotonic) {
  const Nanoseconds at = monotonic_now();
  return monotonic > at ? std::min(monotonic - at, Requests::kConnectMsMax * kMillisecond) : 0;  // no client can ask for more
}

}  // namespace unet::service
