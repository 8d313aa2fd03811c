// restart.cc - each path in turn has its network interface replaced, again and again; of all its endpoints, the longest pauses.
#include "apps/bench/benchmarks/methods.h"

#include <algorithm>
#include <cstdio>

#include "apps/bench/workloads/restart.h"

namespace unet::bench {

namespace {

constexpr uint32_t kTakeoversPerRepetition = 4;
constexpr size_t kLocalEnds = 2 * kRestartLocal;
constexpr size_t kSamples = kRestartEndpoints + kLocalEnds + 2 * kTimelineBins + 1;

struct Pauses {
  std::vector<double> ns;
  std::vector<double> timeline = std::vector<double>(kTimelineBins);  // summed over all takeovers
};

struct Replaced {
  Pauses shared, local;
  std::vector<double> lost;
  uint64_t slices = 0;
};

void take(const std::vector<uint64_t>& samples, Replaced& into) {
  auto at = samples.begin();
  const auto pauses = [&](Pauses& of, size_t count) {
    for (size_t i = 0; i < count; ++i) of.ns.push_back(to_ns(*at++));
  };
  const auto bins = [&](Pauses& of) {
    for (double& bin : of.timeline) bin += static_cast<double>(*at++);
  };
  pauses(into.shared, kRestartEndpoints);
  pauses(into.local, kLocalEnds);
  bins(into.shared);
  bins(into.local);
  into.lost.push_back(static_cast<double>(*at));
  ++into.slices;
}

void add_records(std::vector<Record>& list, const Record& blank, const Replaced& of) {
  const auto add = [&](const char* metric, const Pauses& pauses) {
    Record record = blank;
    record.metric = metric;
    record.summary = summarize(pauses.ns);
    record.distribution = distribution(pauses.ns);
    for (const double sum : pauses.timeline) record.timeline.push_back(sum / static_cast<double>(of.slices));
    list.push_back(record);
    record.metric = std::string(metric) + "_max";
    record.summary = summarize({*std::max_element(pauses.ns.begin(), pauses.ns.end())});
    record.summary.samples = pauses.ns.size();
    record.distribution.clear();
    record.timeline.clear();
    list.push_back(std::move(record));
  };
  add("blackout", of.shared);
  if (blank.path != "stop") add("local", of.local);
}

}  // namespace

Records measure_restart(Session& session, const Benchmark& benchmark, uint32_t size, const PathIndices& paths,
                        const MeasureOptions& options) {
  std::vector<Replaced> all(session.path_count());
  Slice slice;
  slice.workload = Workload::restart;
  slice.size = size;
  slice.iterations = 1;
  for (uint32_t i = 0; i < options.repeat * kTakeoversPerRepetition; ++i) {
    for (const size_t index : paths) {
      if (!session.refusal(index).empty()) continue;
      auto result = session.run(index, slice);
      if (session.over()) return tl::unexpected(result.error());
      if (!result) std::fprintf(stderr, "unet-bench: restart: %s\n", result.error().text.c_str());
      else if (result->samples->size() == kSamples) take(*result->samples, all[index]);
    }
  }
  std::vector<Record> records;
  for (const size_t index : paths) {
    if (all[index].slices == 0) continue;
    const PathInfo& info = session.path(index).info();
    Record record = record_without_figures(benchmark, info, size, options);
    record.slices = all[index].slices;
    add_records(records, record, all[index]);
    const double lost = *std::max_element(all[index].lost.begin(), all[index].lost.end());
    std::fprintf(stderr, "unet-bench: %s: at most %.0f messages lost in one of %llu times\n", info.name.c_str(), lost,
                 static_cast<unsigned long long>(all[index].slices));
  }
  return records;
}

}  // namespace unet::bench
