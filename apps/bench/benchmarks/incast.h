// incast.h - the benchmark `am-incast`: many senders to one receiver, in a simulated network and virtual time.
#pragma once

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

void add_incast(Paths& paths);

Result<std::vector<Record>> measure_incast(Session& session, const Benchmark& benchmark, uint32_t size, const std::vector<size_t>& paths,
                                           const MeasureOptions& options);

}  // namespace unet::bench
