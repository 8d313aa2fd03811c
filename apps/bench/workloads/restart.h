// restart.h - the samples of a slice of the workload `restart`, written by its paths and read by the benchmark.
//
// In order: the longest pause of each endpoint, then of each local endpoint, in cycles; messages per millisecond through the engine, then
// on local channels (kTimelineBins of each); messages lost.
#pragma once

#include <cstdint>

namespace unet::bench {

constexpr uint32_t kRestartEndpoints = 64;  // through the engine, each of which receives
constexpr uint32_t kRestartLocal = 4;       // pairs on local channels

}  // namespace unet::bench
