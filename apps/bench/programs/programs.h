// programs.h - the benchmark `sockets`: programs of others, unmodified, on our sockets and on the kernel's; main.cc runs it, without a
// session, whose two processes would need the programs' cores.
#pragma once

#include "apps/bench/benchmarks/measure.h"
#include "apps/bench/frame/path.h"
#include "apps/bench/machine/cores.h"

namespace unet::bench {

void add_programs(Paths& paths);

// Runs every program at every one of these paths in turn, `options.repeat` times. What cannot be run is said once and left out. A SIGINT or
// SIGTERM ends it. Ratio: over the path's baseline in the same repetition.
Result<std::vector<Record>> measure_programs(const Benchmark& benchmark, const std::vector<PathInfo>& paths, CorePair cores,
                                             const MeasureOptions& options);

}  // namespace unet::bench
