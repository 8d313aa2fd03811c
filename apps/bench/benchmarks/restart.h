// restart.h - the benchmark `restart`: how long messages stop when the network interface is replaced; what its paths write.
#pragma once

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

Result<std::vector<Record>> measure_restart(Session& session, const Benchmark& benchmark, uint32_t size,
                                            const std::vector<size_t>& paths, const MeasureOptions& options);

}  // namespace unet::bench
