// splitc.h - the benchmark `splitc`: what each access of Split-C takes, beside the limit of its own kind.
#pragma once

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

Result<std::vector<Record>> measure_splitc(Session& session, const Benchmark& benchmark, const std::vector<size_t>& paths,
                                           const MeasureOptions& options);

}  // namespace unet::bench
