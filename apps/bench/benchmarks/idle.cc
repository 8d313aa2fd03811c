// idle.cc - each path in turn waits for a second; what its processes used of a core meanwhile.
#include "apps/bench/benchmarks/methods.h"

#include <cstdio>

#include "apps/bench/machine/cpu_time.h"

namespace unet::bench {

namespace {

constexpr uint64_t kIdleMs = 1000;

// Per cent of one core.
Result<double> share_of_core(Session& session, size_t index, uint32_t size) {
  Slice slice;
  slice.workload = Workload::idle;
  slice.size = size;
  slice.iterations = kIdleMs;
  // The two sides count their time inside run() only, without their spinning before and after.
  const std::vector<int> services = session.path(index).service_processes();
  auto before = cpu_time_of(services);
  if (!before) return tl::unexpected(before.error());
  auto result = session.run(index, slice);
  if (!result) return tl::unexpected(result.error());
  auto after = cpu_time_of(services);
  if (!after) return tl::unexpected(after.error());
  return 100.0 * static_cast<double>(*after - *before + result->cpu_a + result->cpu_b) / static_cast<double>(result->elapsed);
}

}  // namespace

Records measure_idle(Session& session, const Benchmark& benchmark, uint32_t size, const PathIndices& paths, const MeasureOptions& options) {
  std::vector<std::vector<double>> shares(session.path_count());
  for (uint32_t i = 0; i < options.repeat; ++i) {
    for (size_t index : paths) {
      if (!session.refusal(index).empty()) continue;
      auto share = share_of_core(session, index, size);
      if (session.over()) return tl::unexpected(share.error());
      if (share) shares[index].push_back(*share);
      else std::fprintf(stderr, "unet-bench: idle: %s\n", share.error().text.c_str());
    }
  }
  std::vector<Record> records;
  for (size_t index : paths) {
    if (shares[index].empty()) continue;
    const PathInfo& info = session.path(index).info();
    records.push_back(record_of_values(benchmark, info, size, options, benchmark.metric, benchmark.unit, shares[index]));
  }
  return records;
}

}  // namespace unet::bench
