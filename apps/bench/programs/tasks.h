// tasks.h - the benchmark `tasks`: the time until tasks run on all hosts, in three ways; in namespaces, and simulated. main.cc runs it
// without a session, because all cores are for the hosts.
#pragma once

#include "apps/bench/benchmarks/measure.h"
#include "apps/bench/frame/path.h"

namespace unet::bench {

void add_tasks(Paths& paths);

// Sizes are numbers of hosts. Ratio: over one host after another, of the same kind and in the same repetition. SIGINT and SIGTERM end it.
Result<std::vector<Record>> measure_tasks(const Benchmark& benchmark, const std::vector<PathInfo>& paths,
                                          const std::vector<uint32_t>& sizes, const MeasureOptions& options);

}  // namespace unet::bench
