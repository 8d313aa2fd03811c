// idle.h - the benchmark `idle`: processor time used while nothing happens.
#pragma once

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

Result<std::vector<Record>> measure_idle(Session& session, const Benchmark& benchmark, uint32_t size,
                                         const std::vector<size_t>& paths, const MeasureOptions& options);

}  // namespace unet::bench
