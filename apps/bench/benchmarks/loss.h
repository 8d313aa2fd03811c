// loss.h - the benchmarks `am-loss` and `tcp-loss`: what arrives over a wire that loses frames, delays them, or has some come late.
#pragma once

#include <span>

#include "apps/bench/benchmarks/measure.h"
#include "apps/bench/workloads/lossy.h"

namespace unet::bench {

// Those of a benchmark, the whole wire first.
std::span<const Condition> conditions_of(const Benchmark& benchmark);

// `options.conditions` choose among them; the whole wire is always measured.
Result<std::vector<Record>> measure_loss(Session& session, const Benchmark& benchmark, uint32_t size, const std::vector<size_t>& paths,
                                         const MeasureOptions& options);

}  // namespace unet::bench
