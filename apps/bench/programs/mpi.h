// mpi.h - the benchmark `mpi`: Open MPI over our provider of libfabric and over its own transports. main.cc runs it without a session,
// because the ranks need both cores.
#pragma once

#include "apps/bench/benchmarks/measure.h"
#include "apps/bench/frame/path.h"
#include "apps/bench/machine/cores.h"

namespace unet::bench {

void add_mpi_paths(Paths& paths);

// Runs each job on each path in turn, `options.repeat` times. A path that fails is named once. SIGINT and SIGTERM end it. Ratio: over each
// of the path's baselines in the same repetition.
Result<std::vector<Record>> measure_mpi(const Benchmark& benchmark, const std::vector<PathInfo>& paths, CorePair cores,
                                        const MeasureOptions& options);

}  // namespace unet::bench
