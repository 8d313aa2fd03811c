// logp.h - the benchmark `logp`: a path's latency, overheads and gaps, in the terms of the LogP model.
#pragma once

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

Result<std::vector<Record>> measure_logp(Session& session, const Benchmark& benchmark, uint32_t size, const std::vector<size_t>& paths,
                                         const MeasureOptions& options);

}  // namespace unet::bench
