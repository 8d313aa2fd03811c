// endpoints.h - the benchmark `endpoints`: what idle endpoints cost the active pair.
#pragma once

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

Result<std::vector<Record>> measure_endpoints(Session& session, const Benchmark& benchmark, uint32_t size,
                                              const std::vector<size_t>& paths, const MeasureOptions& options);

}  // namespace unet::bench
