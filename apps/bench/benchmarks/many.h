// many.h - the benchmark `many`: what idle connections cost, and an active one beside them.
#pragma once

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

// `count`: of idle connections.
Result<std::vector<Record>> measure_many(Session& session, const Benchmark& benchmark, uint32_t count, const std::vector<size_t>& paths,
                                         const MeasureOptions& options);

}  // namespace unet::bench
