// many.cc - each path in turn: round trips alone, connections opened, round trips beside them, connections reset.
#include "apps/bench/benchmarks/methods.h"

#include <array>
#include <cstdio>

#include "apps/bench/workloads/connections.h"

namespace unet::bench {

namespace {

constexpr uint32_t kActiveSize = 64;  // bytes of a message of the active connection
constexpr const char* kRival = "kernel-tcp-busy";
constexpr const char* kNone = "no idle connection";
constexpr std::array<const char*, kManySamples> kManyMetrics = {"open", "client_memory", "server_memory", "service_memory",
                                                                     "kernel_memory"};

class ManyOfPath {
 public:
  ManyOfPath(Session& session, const Benchmark& benchmark, uint32_t count, size_t index, const MeasureOptions& options)
      : session_(session), benchmark_(benchmark), count_(count), index_(index), options_(options) {}

  Result<std::vector<Record>> run() {
    for (uint32_t i = 0; i < options_.repeat; ++i) {
      auto none = round_trips();
      if (!none) return tl::unexpected(none.error());
      if (auto opened = hold(count_); !opened) return tl::unexpected(opened.error());
      auto with_idle = round_trips();
      if (!with_idle) return tl::unexpected(with_idle.error());
      if (auto closed = hold(0); !closed) return tl::unexpected(closed.error());
      if (!none->has_figures() || !with_idle->has_figures()) continue;
      add(*none, *with_idle);
    }
    return records();
  }

 private:
  Result<Record> round_trips() {
    MeasureOptions once = options_;
    once.repeat = 1;
    once.seconds = options_.seconds / options_.repeat;
    auto records = measure(session_, benchmark_, kActiveSize, {index_}, once);
    if (!records) return tl::unexpected(records.error());
    if (records->size() < 2) return fail(Errc::unavailable, "the round trips of one connection could not be measured");
    return records->back();
  }

  Status hold(uint64_t count) {
    const Slice slice{.workload = Workload::many, .iterations = count};
    auto result = session_.run(index_, slice);
    if (!result) return tl::unexpected(result.error());
    const std::vector<uint64_t>& samples = *result->samples;
    if (count == 0 || samples.empty()) return {};
    const double each = static_cast<double>(count);
    figures_[kOpenCycles].push_back(to_ns(samples[kOpenCycles]) / each);
    if (samples.size() != kManySamples) return {};
    for (size_t i = kClientMemory; i < kManySamples; ++i) figures_[i].push_back(static_cast<double>(samples[i]) / each);
    const uint64_t all = samples[kClientMemory] + samples[kServerMemory] + samples[kServiceMemory] + samples[kKernelMemory];
    memory_.push_back(static_cast<double>(all) / each / 2);
    return {};
  }

  void add(const Record& none, const Record& with_idle) {
    rtt_.push_back(with_idle);
    ratios_.push_back(with_idle.summary.p50 / none.summary.p50);
  }

  Record record(const char* metric, const char* unit, const std::vector<double>& values) const {
    return record_of_values(benchmark_, session_.path(index_).info(), count_, options_, metric, unit, values);
  }

  std::vector<Record> records() const {
    std::vector<Record> list;
    if (!rtt_.empty()) {
      const auto middle = [&](auto member) {
        std::vector<std::optional<double>> values;
        for (const Record& each : rtt_) values.push_back(each.summary.*member);
        return known_median(values);
      };
      Record rtt = rtt_.back();
      rtt.size = count_;
      rtt.summary.p50 = *middle(&Summary::p50);
      rtt.summary.p99 = middle(&Summary::p99);
      rtt.summary.p999 = middle(&Summary::p999);
      rtt.summary.mean = *middle(&Summary::mean);
      rtt.ratio = median(ratios_);
      rtt.baseline = kNone;
      list.push_back(rtt);
    }
    list.push_back(record(kManyMetrics[kOpenCycles], "ns", figures_[kOpenCycles]));
    if (memory_.empty()) return list;
    list.push_back(record("memory", "B", memory_));
    const bool no_service = session_.path(index_).service_processes().empty();
    for (size_t i = kClientMemory; i < kManySamples; ++i) {
      if (i != kServiceMemory || !no_service) list.push_back(record(kManyMetrics[i], "B", figures_[i]));
    }
    return list;
  }

  Session& session_;
  const Benchmark& benchmark_;
  const uint32_t count_;
  const size_t index_;
  const MeasureOptions& options_;
  std::vector<Record> rtt_;
  std::vector<double> ratios_, memory_;
  std::array<std::vector<double>, kManySamples> figures_;
};

void compare_memory(std::vector<Record>& records) {
  double rival = 0;
  for (const Record& record : records) {
    if (record.path == kRival && record.metric == "memory") rival = record.summary.p50;
  }
  for (Record& record : records) {
    if (record.metric != "memory" || rival <= 0) continue;
    record.limit = rival;
    record.ratio = record.summary.p50 / rival;
    record.baseline = kRival;
  }
}

}  // namespace

Records measure_many(Session& session, const Benchmark& benchmark, uint32_t count, const PathIndices& paths,
                     const MeasureOptions& options) {
  std::vector<Record> list;
  for (const size_t index : paths) {
    if (!session.refusal(index).empty()) continue;
    auto records = ManyOfPath(session, benchmark, count, index, options).run();
    if (session.over()) return records;
    if (!records) {
      std::fprintf(stderr, "unet-bench: many: %s: %s\n", session.path(index).info().name.c_str(), records.error().text.c_str());
      continue;
    }
    list.insert(list.end(), records->begin(), records->end());
  }
  compare_memory(list);
  return list;
}

}  // namespace unet::bench
