// fairness.h - the benchmark `fairness`: a well-behaved pair beside each kind of hostile client, beside its control, and alone.
#pragma once

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

Result<std::vector<Record>> measure_fairness(Session& session, const Benchmark& benchmark, uint32_t size,
                                             const std::vector<size_t>& paths, const MeasureOptions& options);

}  // namespace unet::bench
