// endpoints.cc - rtt with 0 ... 4096 idle endpoints, every number in every repetition, each over none of the same repetition.
#include "apps/bench/benchmarks/methods.h"

#include <array>
#include <cstdio>

namespace unet::bench {

namespace {

constexpr std::array<uint32_t, 4> kIdleEndpoints = {0, 16, 256, 4096};

// Figures of the repetitions, for one number of idle endpoints.
struct Series {
  std::vector<double> p50, mean, limit, ratio;
  std::vector<std::optional<double>> p99, p999;
  uint64_t samples = 0, slices = 0, dropped = 0, disturbed = 0;
};

void add(Series& series, const Record& record, double none) {
  series.p50.push_back(record.summary.p50);
  series.p99.push_back(record.summary.p99);
  series.p999.push_back(record.summary.p999);
  series.mean.push_back(record.summary.mean);
  series.limit.push_back(record.limit);
  series.samples += record.summary.samples;
  series.slices += record.slices;
  series.dropped += record.dropped;
  series.disturbed += record.disturbed;
  if (none > 0) series.ratio.push_back(record.summary.p50 / none);
}

Record record_of(const Series& series, uint32_t idle, const Record& like) {
  Record record = like;
  record.metric = "rtt_" + std::to_string(idle) + "_idle";
  record.summary = {median(series.p50), known_median(series.p99), known_median(series.p999), median(series.mean), series.samples};
  record.limit = median(series.limit);
  record.slices = series.slices;
  record.dropped = series.dropped;
  record.disturbed = series.disturbed;
  record.baseline = record.path + " with no idle endpoint";
  record.ratio = series.ratio.empty() ? std::nullopt : std::optional<double>(median(series.ratio));
  return record;
}

class EndpointsOfPath {
 public:
  EndpointsOfPath(Session& session, const Benchmark& benchmark, uint32_t size, size_t index, const MeasureOptions& options)
      : session_(session), benchmark_(benchmark), size_(size), index_(index), options_(options) {}

  Result<std::vector<Record>> run() {
    MeasureOptions once = options_;
    once.repeat = 1;
    once.seconds = options_.seconds / options_.repeat;
    for (uint32_t i = 0; i < options_.repeat; ++i) {
      double none = 0;
      for (size_t n = 0; n < kIdleEndpoints.size(); ++n) {
        if (auto added = session_.set_idle_endpoints(index_, kIdleEndpoints[n]); !added) return tl::unexpected(added.error());
        auto records = measure(session_, benchmark_, size_, {index_}, once);
        if (!records) return records;
        if (records->size() < 2 || !records->back().has_figures()) continue;
        last_ = records->back();
        if (n == 0) none = last_.summary.p50;
        add(series_[n], last_, none);
      }
    }
    if (auto removed = session_.set_idle_endpoints(index_, 0); !removed) return tl::unexpected(removed.error());
    std::vector<Record> list;
    for (size_t n = 0; n < kIdleEndpoints.size(); ++n) {
      if (!series_[n].p50.empty()) list.push_back(record_of(series_[n], kIdleEndpoints[n], last_));
    }
    return list;
  }

 private:
  Session& session_;
  const Benchmark& benchmark_;
  uint32_t size_;
  size_t index_;
  const MeasureOptions& options_;
  std::array<Series, kIdleEndpoints.size()> series_;
  Record last_;
};

}  // namespace

Records measure_endpoints(Session& session, const Benchmark& benchmark, uint32_t size, const PathIndices& paths,
                          const MeasureOptions& options) {
  std::vector<Record> list;
  for (size_t index : paths) {
    if (!session.refusal(index).empty()) continue;
    auto records = EndpointsOfPath(session, benchmark, size, index, options).run();
    if (session.over()) return records;
    if (!records) {
      std::fprintf(stderr, "unet-bench: endpoints: %s: %s\n", session.path(index).info().name.c_str(),
                   records.error().text.c_str());
      continue;
    }
    list.insert(list.end(), records->begin(), records->end());
  }
  return list;
}

}  // namespace unet::bench
