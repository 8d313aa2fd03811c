// logp.cc - round trips, bursts with a pause, a stream and stores between two slices of the limit, for each repetition and path.
//
// LogP's parameters follow from them: Culler, Liu, Martin and Yoshikawa, "Assessing Fast Network Interfaces", IEEE Micro 1996.
#include "apps/bench/benchmarks/methods.h"

#include <array>
#include <cstdio>

#include "apps/bench/workloads/am.h"
#include "apps/bench/workloads/messages.h"

namespace unet::bench {

namespace {

constexpr double kLogpSliceNs = 1e6;
constexpr uint32_t kBulk = 65536;        // bytes of a store
constexpr uint64_t kBursts = 100;        // of a slice, and before it a few that say how long the pause must be
constexpr uint64_t kWarmBursts = 16;

enum Parameter : size_t { kLatency, kSend, kReceive, kGap, kGapPerByte, kParameters };
constexpr std::array<const char*, kParameters> kNames = {"L", "o_send", "o_recv", "g", "G"};

struct LogpPath {
  size_t index;
  Pace trips, stream, bulk;
  std::array<std::vector<Repetition>, kParameters> repetitions = {};
  std::array<std::vector<double>, kParameters> values = {};
};

class LogP {
 public:
  LogP(Session& session, const Benchmark& benchmark, uint32_t size, const MeasureOptions& options)
      : session_(session), benchmark_(benchmark), size_(size), options_(options), limit_(Workload::rtt, size, kLogpSliceNs) {}

  Result<std::vector<Record>> run(const std::vector<size_t>& paths) {
    const auto limit = find_limit(session_, benchmark_.limit_path(size_));
    if (!limit) return tl::unexpected(limit.error());
    limit_index_ = *limit;
    if (auto done = limit_.calibrate(session_, limit_index_); !done) return tl::unexpected(done.error());
    for (const size_t index : paths) {
      if (session_.path(index).info().can(Ability::layer) && session_.refusal(index).empty()) add(index);
    }
    for (uint32_t i = 0; i < options_.repeat && !session_.over(); ++i) {
      if (auto done = repetition(); !done) return tl::unexpected(done.error());
    }
    if (session_.over()) return fail(Errc::disconnected, session_.over_text());
    for (LogpPath& path : paths_) {
      const double usual = usual_limit(path.repetitions[kLatency]);
      for (size_t i = 0; i < kParameters; ++i) drop_unusual(path.repetitions[i], usual, path.values[i]);
    }
    std::vector<Record> records;
    for (const LogpPath& path : paths_) {
      for (size_t i = 0; i < kParameters; ++i) records.push_back(record_of(path, i));
    }
    return records;
  }

 private:
  void add(size_t index) {
    LogpPath path{.index = index,
              .trips = Pace(Workload::am_short, size_, kLogpSliceNs),
              .stream = Pace(Workload::rate, size_, kLogpSliceNs),
              .bulk = Pace(Workload::put, kBulk, kLogpSliceNs)};
    for (Pace* const pace : {&path.trips, &path.stream, &path.bulk}) {
      if (auto done = pace->calibrate(session_, index); !done) return complain(done.error());
    }
    paths_.push_back(std::move(path));
  }
  static void complain(const Error& error) { std::fprintf(stderr, "unet-bench: logp: %s\n", error.text.c_str()); }

  struct Value {
    double ns = 0;  // of one: the median of a slice
    bool disturbed = false;
  };
  Result<Value> value_of(size_t index, Pace& pace) {
    const Slice slice = pace.batched();
    auto result = session_.run(index, slice);
    if (!result) return tl::unexpected(result.error());
    const double whole = to_ns(result->outcome.cycles);
    pace.learn(slice, whole);
    const bool trips = slice.workload == Workload::rtt || slice.workload == Workload::am_short;
    const double each = trips ? median(values_of(slice, *result)) : whole / static_cast<double>(slice.iterations);
    return Value{each, was_disturbed(session_, index, *result)};
  }
  // Samples alternate: cycles of a burst of requests, and of taking their replies after a pause.
  Status overheads_of(size_t index, std::array<Value, kParameters>& of) {
    Slice slice{.workload = Workload::am_overheads, .size = size_, .iterations = kBursts, .warm_up = kWarmBursts};
    auto result = session_.run(index, slice);
    if (!result) return tl::unexpected(result.error());
    std::array<std::vector<double>, 2> halves;
    for (size_t i = 0; i < result->samples->size(); ++i) {
      halves[i % 2].push_back(to_ns((*result->samples)[i]) / static_cast<double>(kAmBurst));
    }
    if (halves[1].empty()) return fail(Errc::protocol, "a slice without a result");
    const bool disturbed = was_disturbed(session_, index, *result);
    of[kSend] = {median(halves[0]), disturbed};
    of[kReceive] = {median(halves[1]), disturbed};
    return {};
  }

  Status measure_path(LogpPath& path) {
    std::array<Value, kParameters> of;
    auto before = value_of(limit_index_, limit_);
    if (!before) return tl::unexpected(before.error());
    const auto trip = value_of(path.index, path.trips);
    if (!trip) return tl::unexpected(trip.error());
    if (auto done = overheads_of(path.index, of); !done) return done;
    const auto gap = value_of(path.index, path.stream);
    if (!gap) return tl::unexpected(gap.error());
    const auto bulk = value_of(path.index, path.bulk);
    if (!bulk) return tl::unexpected(bulk.error());
    auto after = value_of(limit_index_, limit_);
    if (!after) return tl::unexpected(after.error());
    of[kLatency] = {trip->ns / 2 - of[kSend].ns - of[kReceive].ns, trip->disturbed || of[kSend].disturbed};
    of[kGap] = *gap;
    of[kGapPerByte] = {bulk->ns * 1024 / kBulk, bulk->disturbed};
    for (size_t i = 0; i < kParameters; ++i) {
      const bool disturbed = of[i].disturbed || before->disturbed || after->disturbed;
      if (path.repetitions[i].back().add({of[i].ns, before->ns, after->ns, disturbed})) path.values[i].push_back(of[i].ns);
    }
    return {};
  }

  Status repetition() {
    const double budget_ns = options_.seconds * 1e9 * static_cast<double>(paths_.size()) / options_.repeat;
    for (LogpPath& path : paths_) {
      for (auto& repetitions : path.repetitions) repetitions.emplace_back();
    }
    const Nanoseconds start = monotonic_now();
    const auto spent = [&] { return static_cast<double>(monotonic_now() - start) / budget_ns; };
    const auto enough = [&] {
      return std::all_of(paths_.begin(), paths_.end(),
                         [](const LogpPath& path) { return path.repetitions[kLatency].back().values.size() >= kRoundsMin; });
    };
    do {
      for (size_t i = 0; i < paths_.size();) {
        const Status done = measure_path(paths_[i]);
        if (done) {
          ++i;
          continue;
        }
        if (session_.over()) return done;
        complain(done.error());
        if (session_.refusal(paths_[i].index).empty()) return done;  // the limit failed
        paths_.erase(paths_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    } while (!paths_.empty() && (spent() < 1 || (!enough() && spent() < kPatience)));
    return {};
  }

  Record record_of(const LogpPath& path, size_t parameter) const {
    const bool bulk = parameter == kGapPerByte;
    const uint32_t size = bulk ? kBulk : size_;
    Record record = record_without_figures(benchmark_, session_.path(path.index).info(), size, options_);
    record.metric = kNames[parameter];
    if (bulk) record.unit = "ns/KiB";
    record.summary = summarize(path.values[parameter]);
    const std::vector<Repetition>& repetitions = path.repetitions[parameter];
    record.summary.p50 = median_of(repetitions, &Repetition::p50);
    if (!bulk) {  // a cache line's time is no limit for bulk data
      record.limit = median_of(repetitions, &Repetition::limit);
      record.ratio = ratio_to_limit(repetitions, Relation::over);
      if (record.ratio) record.baseline = benchmark_.limit_path(size_);
    }
    count_slices(record, repetitions);
    return record;
  }

  Session& session_;
  const Benchmark& benchmark_;
  uint32_t size_;
  const MeasureOptions& options_;
  size_t limit_index_ = 0;
  Pace limit_;
  std::vector<LogpPath> paths_;
};

}  // namespace

Records measure_logp(Session& session, const Benchmark& benchmark, uint32_t size, const PathIndices& paths, const MeasureOptions& options) {
  return LogP(session, benchmark, size, options).run(paths);
}

}  // namespace unet::bench
