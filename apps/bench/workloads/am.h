// am.h - what the loops of Active Messages (paths/am/side.h) leave in the samples of a slice, for `logp` and `am-peers`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "unet/base/time.h"

namespace unet::bench {

constexpr Nanoseconds kSettleTime = 2 * kSecond;  // for both sides to have all that they sent acknowledged
constexpr size_t kAmMemories = 5;  // am_peers, samples: bytes more of A, of B, of what they share, that A maps, and of the services
constexpr uint64_t kAmBurst = 4;   // am_overheads: requests that are timed together, and then their replies

}  // namespace unet::bench
