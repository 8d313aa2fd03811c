// am_workload.h - what the loops of Active Messages (am_side.h) leave in the samples of a slice, for `logp` and `am-peers`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unet::bench {

constexpr size_t kAmMemories = 5;  // am_peers, samples: bytes more of A, of B, of what they share, that A maps, and of the services
constexpr uint64_t kAmBurst = 4;   // am_overheads: requests that are timed together, and then their replies

}  // namespace unet::bench
