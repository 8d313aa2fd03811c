// peers.cc - many peers mapped and unmapped, once per repetition and path; what both processes and the service have more meanwhile.
#include "apps/bench/benchmarks/methods.h"

#include <array>
#include <cstdio>

#include "apps/bench/workloads/am.h"

namespace unet::bench {

namespace {

constexpr uint32_t kPeers = 64;
constexpr std::array<const char*, kAmMemories> kPeersMetrics = {"client_memory", "peer_memory", "shared_memory", "mapped_memory",
                                                                      "service_memory"};

}  // namespace

Records measure_peers(Session& session, const Benchmark& benchmark, uint32_t, const PathIndices& paths, const MeasureOptions& options) {
  std::vector<Record> records;
  const Slice slice{.workload = Workload::am_peers, .iterations = kPeers};
  for (const size_t index : paths) {
    if (!session.path(index).supports(slice.workload, 0)) continue;
    std::array<std::vector<double>, kAmMemories> memories;
    for (uint32_t i = 0; i < options.repeat && session.refusal(index).empty(); ++i) {
      auto result = session.run(index, slice);
      if (session.over()) return tl::unexpected(result.error());
      if (!result) std::fprintf(stderr, "unet-bench: am-peers: %s\n", result.error().text.c_str());
      if (!result || result->samples->size() != memories.size()) continue;
      // A service keeps the memory that it once had: only the first repetition counts.
      const size_t counted = memories.size() - (i == 0 ? 0 : 1);
      for (size_t m = 0; m < counted; ++m) memories[m].push_back(static_cast<double>((*result->samples)[m]) / kPeers);
    }
    if (memories[0].empty()) continue;
    const PathInfo& info = session.path(index).info();
    for (size_t m = 0; m < memories.size(); ++m) {
      const bool no_service = m + 1 == memories.size() && session.path(index).service_processes().empty();
      if (!no_service) records.push_back(record_of_values(benchmark, info, 0, options, kPeersMetrics[m], benchmark.unit, memories[m]));
    }
  }
  return records;
}

}  // namespace unet::bench
