// peers.h - the benchmark `am-peers`: what a peer costs that is there and says nothing.
#pragma once

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

Result<std::vector<Record>> measure_peers(Session& session, const Benchmark& benchmark, const std::vector<size_t>& paths,
                                          const MeasureOptions& options);

}  // namespace unet::bench
