// emulated.h - the benchmark `emulated`: endpoints without queues beside a Unix datagram socket, and what thousands of them cost.
#pragma once

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

Result<std::vector<Record>> measure_emulated(Session& session, const Benchmark& benchmark, uint32_t size,
                                             const std::vector<size_t>& paths, const MeasureOptions& options);

}  // namespace unet::bench
