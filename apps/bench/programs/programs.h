// programs.h - the benchmark `sockets`: unmodified programs on our sockets and on the kernel's; main.cc runs it without a session, because
// the two processes of a session would need the programs' cores.
#pragma once

#include "apps/bench/benchmarks/measure.h"
#include "apps/bench/frame/path.h"
#include "apps/bench/machine/cores.h"

namespace unet::bench {

void add_programs(Paths& paths);

// Runs every program at every one of these paths in turn, `options.repeat` times. Programs that cannot be run are named once and left out.
// SIGINT and SIGTERM end it. Ratio: over the path's baseline in the same repetition.
Result<std::vector<Record>> measure_programs(const Benchmark& benchmark, const std::vector<PathInfo>& paths, CorePair cores,
                                             const MeasureOptions& options);

}  // namespace unet::bench
