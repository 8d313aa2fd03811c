// restart.h - the benchmark `restart`: how long messages stop when the network interface is replaced; what its contenders write.
#pragma once

#include "apps/bench/measure.h"

namespace unet::bench {

constexpr uint32_t kRestartEndpoints = 64;  // through the engine, each of which receives
constexpr uint32_t kRestartLocal = 4;       // pairs on local channels
constexpr uint32_t kTakeoversPerRepetition = 4;

// What run() leaves in the samples of a slice, in this order: the longest pause of each endpoint, then of each local one, in cycles;
// messages per millisecond through the engine and on local channels (report.h: kTimelineBins of them each); messages lost.
Result<std::vector<Record>> measure_restart(Session& session, const Benchmark& benchmark, uint32_t size,
                                            const std::vector<size_t>& paths, const MeasureOptions& options);

}  // namespace unet::bench
