// connect.cc - slices of connections over each path in turn, each between two slices of the limit.
#include "apps/bench/benchmarks/connect.h"

#include <algorithm>
#include <limits>

namespace unet::bench {

namespace {

constexpr double kConnectSliceNs = 10e6;  // some tens of connections
constexpr size_t kSteps = ConnectSteps::kNames.size();
constexpr size_t kTotal = kSteps - 1;

struct Step {
  std::vector<Repetition> repetitions;
  std::vector<std::vector<double>> samples;  // an entry for each kept slice
};

struct ConnectPath {
  size_t index = 0;
  Pace pace;
  std::array<Step, kSteps> steps = {};
};

struct ConnectSlice {
  ConnectSteps steps;
  std::array<double, kSteps> p50 = {};
  bool disturbed = false;
};

class ConnectMeasurement {
 public:
  ConnectMeasurement(Session& session, const Benchmark& benchmark, const MeasureOptions& options)
      : session_(session), benchmark_(benchmark), options_(options) {}

  Result<std::vector<Record>> run(const std::vector<size_t>& paths) {
    if (auto ready = prepare(paths); !ready) return tl::unexpected(ready.error());
    for (uint32_t i = 0; i < options_.repeat; ++i) {
      if (auto done = repetition(); !done) return tl::unexpected(done.error());
    }
    drop_unusual_slices();
    std::vector<Record> list;
    for (const auto* group : {&limit_, &paths_}) {
      for (const ConnectPath& path : *group) {
        for (size_t step = 0; step < kSteps; ++step) list.push_back(record_of(path, step));
      }
    }
    return list;
  }

 private:
  Status prepare(const std::vector<size_t>& paths);
  Status repetition();
  Status round();
  Result<ConnectSlice> slice_of(ConnectPath& path);
  static void keep(ConnectPath& path, const ConnectSlice& slice, const ConnectSlice& before, const ConnectSlice& after);
  void drop_unusual_slices();
  Status leave_out(size_t index, const Error& error);
  Record record_of(const ConnectPath& path, size_t step) const;
  ConnectPath make_path(size_t index) const { return {index, Pace(Workload::connect, 0, kConnectSliceNs)}; }

  Session& session_;
  const Benchmark& benchmark_;
  const MeasureOptions& options_;
  std::vector<ConnectPath> limit_;  // exactly one
  std::vector<ConnectPath> paths_;
  ConnectSlice limit_now_;          // the last one
};

Status ConnectMeasurement::leave_out(size_t index, const Error& error) {
  if (session_.over()) return tl::unexpected(error);
  std::fprintf(stderr, "unet-bench: %s: %s\n", benchmark_.name.c_str(), error.text.c_str());
  std::erase_if(paths_, [&](const ConnectPath& path) { return path.index == index; });
  return {};
}

Status ConnectMeasurement::prepare(const std::vector<size_t>& paths) {
  const auto limit = find_limit(session_, benchmark_.limit_path(0));
  if (!limit) return tl::unexpected(limit.error());
  limit_.push_back(make_path(*limit));
  if (auto done = limit_[0].pace.calibrate(session_, *limit); !done) return done;
  for (size_t index : paths) {
    if (index == *limit || !session_.refusal(index).empty()) continue;
    paths_.push_back(make_path(index));
    if (auto done = paths_.back().pace.calibrate(session_, index); !done) {
      if (auto out = leave_out(index, done.error()); !out) return out;
    }
  }
  return {};
}

Result<ConnectSlice> ConnectMeasurement::slice_of(ConnectPath& path) {
  auto result = session_.run(path.index, path.pace.batched());
  if (!result) return tl::unexpected(result.error());
  ConnectSlice slice{ConnectSteps::from(*result->samples)};
  if (slice.steps.of[kTotal].empty()) return fail(Errc::protocol, "a slice without a result");
  for (size_t step = 0; step < kSteps; ++step) slice.p50[step] = median(slice.steps.of[step]);
  // A daemon of the path's own shares the cores with both sides: that wait belongs to the path.
  const bool judged = !session_.cores().alone() && session_.path(path.index).service_processes().empty();
  slice.disturbed = judged && static_cast<double>(result->waited) > kDisturbedShareSleeping * static_cast<double>(result->elapsed);
  return slice;
}

// The limit's total decides for all steps of a slice.
void ConnectMeasurement::keep(ConnectPath& path, const ConnectSlice& slice, const ConnectSlice& before, const ConnectSlice& after) {
  const bool held = limit_held({0, before.p50[kTotal], after.p50[kTotal]});
  const double tolerance = held ? std::numeric_limits<double>::infinity() : 0;
  for (size_t step = 0; step < kSteps; ++step) {
    Step& of = path.steps[step];
    if (!held && !slice.disturbed) {
      ++of.repetitions.back().dropped;
      continue;
    }
    if (!of.repetitions.back().add({slice.p50[step], before.p50[step], after.p50[step], slice.disturbed}, tolerance)) continue;
    of.samples.push_back(slice.steps.of[step]);
  }
}

void ConnectMeasurement::drop_unusual_slices() {
  std::array<double, kSteps> usual;
  for (size_t step = 0; step < kSteps; ++step) usual[step] = usual_limit(limit_[0].steps[step].repetitions);
  for (auto* group : {&limit_, &paths_}) {
    for (ConnectPath& path : *group) {
      for (size_t step = 0; step < kSteps; ++step) drop_unusual(path.steps[step].repetitions, usual[step], path.steps[step].samples);
    }
  }
}

Status ConnectMeasurement::round() {
  const auto measure_limit = [&](ConnectSlice& before) -> Status {
    auto limit = slice_of(limit_[0]);
    if (!limit) return tl::unexpected(limit.error());
    before = std::move(limit_now_);
    limit_now_ = std::move(*limit);
    return {};
  };
  ConnectSlice before;
  if (paths_.empty()) {
    if (auto done = measure_limit(before); !done) return done;
    keep(limit_[0], limit_now_, before, limit_now_);
  }
  for (size_t i = 0; i < paths_.size();) {
    auto slice = slice_of(paths_[i]);
    if (!slice) {
      if (auto out = leave_out(paths_[i].index, slice.error()); !out) return out;
      continue;
    }
    if (auto done = measure_limit(before); !done) return done;
    keep(paths_[i], *slice, before, limit_now_);
    keep(limit_[0], limit_now_, before, limit_now_);
    ++i;
  }
  return {};
}

Status ConnectMeasurement::repetition() {
  const double count = static_cast<double>(std::max<size_t>(1, paths_.size()));
  const double budget_ns = options_.seconds * 1e9 * count / options_.repeat;
  for (auto* group : {&limit_, &paths_}) {
    for (ConnectPath& path : *group) {
      for (Step& step : path.steps) step.repetitions.emplace_back();
    }
  }
  const Nanoseconds start = monotonic_now();
  auto limit = slice_of(limit_[0]);
  if (!limit) return tl::unexpected(limit.error());
  limit_now_ = std::move(*limit);
  do {
    if (auto done = round(); !done) return done;
  } while (static_cast<double>(monotonic_now() - start) < budget_ns);
  return {};
}

Record ConnectMeasurement::record_of(const ConnectPath& path, size_t step) const {
  const PathInfo& info = session_.path(path.index).info();
  const Step& of = path.steps[step];
  Record record = record_without_figures(benchmark_, info, 0, options_);
  record.metric = ConnectSteps::kNames[step];
  std::vector<double> samples;
  for (const auto& slice : of.samples) samples.insert(samples.end(), slice.begin(), slice.end());
  record.summary = summarize(std::move(samples));
  record.summary.p50 = median_of(of.repetitions, &Repetition::p50);
  record.limit = median_of(of.repetitions, &Repetition::limit);
  record.ratio = ratio_to_limit(of.repetitions, Relation::over);
  record.baseline = benchmark_.limit_path(0);
  if (record.path == record.baseline && record.ratio) record.ratio = 1;  // by definition
  count_slices(record, of.repetitions);
  return record;
}

}  // namespace

ConnectSteps ConnectSteps::from(const std::vector<uint64_t>& samples) {
  ConnectSteps steps;
  for (size_t i = 0; i + 1 < samples.size(); i += 2) {
    steps.of[0].push_back(to_ns(samples[i]));
    steps.of[1].push_back(to_ns(samples[i + 1]));
    steps.of[2].push_back(to_ns(samples[i] + samples[i + 1]));
  }
  return steps;
}

Result<std::vector<Record>> measure_connect(Session& session, const Benchmark& benchmark, const std::vector<size_t>& paths,
                                            const MeasureOptions& options) {
  return ConnectMeasurement(session, benchmark, options).run(paths);
}

}  // namespace unet::bench
