// restart.h - what the workload `restart` leaves in the samples of a slice, in order: the longest pause of each endpoint, then
// of each local one, in cycles; messages per millisecond through the engine and on local channels (report.h: kTimelineBins of them each);
// messages lost.
#pragma once

#include <cstdint>

namespace unet::bench {

constexpr uint32_t kRestartEndpoints = 64;  // through the engine, each of which receives
constexpr uint32_t kRestartLocal = 4;       // pairs on local channels

}  // namespace unet::bench
