// fairness.cc - slices of the pair alone, beside a control, beside one kind of hostility, in turn: round trips, and shares.
//
// A control is a client that does the same as the hostile one without the attack. It costs the pair processor time and the engine's work,
// as any busy program does. The ratio to the control is therefore the attack's part.
#include "apps/bench/benchmarks/methods.h"

#include <algorithm>
#include <map>
#include <string>

#include "apps/bench/results/stats.h"

namespace unet::bench {

namespace {

constexpr double kFairnessSliceNs = 5e6;

// Samples of a path in one repetition.
struct Round {
  std::vector<double> trips;     // ns
  std::vector<double> p50, p99;  // of each slice: one in which the machine stood still does not decide about the tail
  std::vector<double> shares;
};

struct PathUnderLoad {
  size_t index = 0;
  Pace pace;
  std::vector<double> trips = {}, shares = {};                        // of all repetitions
  std::vector<double> p50 = {}, p99 = {}, p50_ratio = {}, p99_ratio = {};  // one per repetition
  std::vector<double> p50_to_control = {}, p99_to_control = {}, control_p50 = {}, control_p99 = {};
  uint64_t slices = 0, disturbed = 0;
};

class FairnessMeasurement {
 public:
  FairnessMeasurement(Session& session, const Benchmark& benchmark, uint32_t size, const MeasureOptions& options)
      : session_(session), benchmark_(benchmark), size_(size), options_(options) {}

  Result<std::vector<Record>> run(const std::vector<size_t>& paths) {
    if (auto ready = prepare(paths); !ready) return tl::unexpected(ready.error());
    for (uint32_t i = 0; i < options_.repeat; ++i) {
      for (size_t p = 0; p < paths_.size(); ++p) {
        if (auto done = repetition(paths_[p]); !done) return tl::unexpected(done.error());
      }
    }
    std::vector<Record> list;
    for (const auto& [index, alone] : alone_) add_trips(list, alone);
    for (const PathUnderLoad& path : paths_) {
      add_trips(list, path);
      if (shares(path)) list.push_back(share_of(path));
    }
    return list;
  }

 private:
  PathUnderLoad make(size_t index) const { return {index, Pace(Workload::rtt, size_, kFairnessSliceNs)}; }

  Status prepare(const std::vector<size_t>& paths) {
    for (size_t index : paths) {
      if (!session_.refusal(index).empty()) continue;
      const auto found = find_limit(session_, alone_path(index));
      if (!found) return tl::unexpected(found.error());
      const size_t alone = *found;
      if (alone_.count(alone) == 0) {
        PathUnderLoad& added = alone_.emplace(alone, make(alone)).first->second;
        if (auto done = added.pace.calibrate(session_, alone); !done) return done;
      }
      if (index == alone) continue;
      paths_.push_back(make(index));
      if (auto done = paths_.back().pace.calibrate(session_, index); !done) return done;
    }
    return {};
  }

  // The path is compared with this one, which has no hostile client beside it.
  std::string alone_path(size_t index) const {
    const std::string& own = session_.path(index).info().baseline;
    return own.empty() ? benchmark_.limit_path(size_) : own;
  }
  PathUnderLoad& alone_of(const PathUnderLoad& path) { return alone_.at(find_path(session_, alone_path(path.index))); }
  const PathUnderLoad& alone_of(const PathUnderLoad& path) const { return alone_.at(find_path(session_, alone_path(path.index))); }
  // nullptr: the path has none, or it is not measured.
  PathUnderLoad* control_of(const PathUnderLoad& path) {
    const std::vector<std::string>& named = session_.path(path.index).info().more_baselines;
    if (named.empty()) return nullptr;
    const size_t index = find_path(session_, named.front());
    const auto at = std::find_if(paths_.begin(), paths_.end(), [&](const PathUnderLoad& other) { return other.index == index; });
    return at == paths_.end() ? nullptr : &*at;
  }
  bool shares(const PathUnderLoad& path) const { return session_.path(path.index).supports(Workload::share, size_).has_value(); }

  bool kept(PathUnderLoad& path, const Session::SliceResult& result) const {
    const bool disturbed = was_disturbed(session_, path.index, result);
    ++path.slices;
    path.disturbed += disturbed ? 1 : 0;
    return !disturbed;
  }

  // Round trips timed one by one. False: another process had the core.
  Result<bool> trips(PathUnderLoad& path, Round& into) {
    const Slice slice = path.pace.single();
    auto result = session_.run(path.index, slice);
    if (!result) return tl::unexpected(result.error());
    if (!kept(path, *result)) return false;
    std::vector<double> values = values_of(slice, *result);
    into.p50.push_back(percentile(values, 0.5));
    into.p99.push_back(percentile(values, 0.99));
    into.trips.insert(into.trips.end(), values.begin(), values.end());
    return true;
  }

  Status share(PathUnderLoad& path, Round& into) {
    Slice slice;
    slice.workload = Workload::share;
    slice.size = size_;
    slice.iterations = 1;
    auto result = session_.run(path.index, slice);
    if (!result) return tl::unexpected(result.error());
    if (!kept(path, *result) || result->samples->empty()) return {};
    into.shares.push_back(100 * static_cast<double>(result->outcome.messages) / static_cast<double>(result->samples->front()));
    return {};
  }

  // The path, its control and the pair alone in turn, for the path's part of the time.
  Status repetition(PathUnderLoad& path) {
    Round loaded, alone, controlled;
    PathUnderLoad* const control = control_of(path);
    const Nanoseconds start = monotonic_now();
    do {
      for (const auto& [other, round] : {std::pair(&alone_of(path), &alone), std::pair(control, &controlled), std::pair(&path, &loaded)}) {
        if (other == nullptr) continue;
        if (auto done = trips(*other, *round); !done) return tl::unexpected(done.error());
      }
      if (!shares(path)) continue;
      if (auto done = share(path, loaded); !done) return done;
    } while (static_cast<double>(monotonic_now() - start) < options_.seconds * 1e9 / options_.repeat);
    if (alone.trips.empty() || loaded.trips.empty()) return {};
    close(alone_of(path), alone, alone);
    close(path, loaded, alone);
    if (controlled.trips.empty()) return {};
    path.control_p50.push_back(median(controlled.p50));
    path.control_p99.push_back(median(controlled.p99));
    path.p50_to_control.push_back(path.p50.back() / path.control_p50.back());
    path.p99_to_control.push_back(path.p99.back() / path.control_p99.back());
    return {};
  }

  static void close(PathUnderLoad& path, const Round& round, const Round& alone) {
    path.p50.push_back(median(round.p50));
    path.p99.push_back(median(round.p99));
    path.p50_ratio.push_back(path.p50.back() / median(alone.p50));
    path.p99_ratio.push_back(path.p99.back() / median(alone.p99));
    path.trips.insert(path.trips.end(), round.trips.begin(), round.trips.end());
    path.shares.insert(path.shares.end(), round.shares.begin(), round.shares.end());
  }

  Record record_of(const PathUnderLoad& path, const char* metric, const char* unit) const {
    Record record = record_without_figures(benchmark_, session_.path(path.index).info(), size_, options_);
    record.metric = metric;
    record.unit = unit;
    record.baseline = alone_path(path.index);
    record.slices = path.slices;
    record.disturbed = path.disturbed;
    return record;
  }

  // The p50 of a metric is the figure that names it; p99 and p999 are those of all round trips.
  void add_trips(std::vector<Record>& list, const PathUnderLoad& path) const {
    for (const bool tail : {false, true}) {
      Record record = record_of(path, tail ? "rtt_p99" : "rtt_p50", "ns");
      record.summary = summarize(path.trips);
      if (!path.p50.empty()) {
        record.summary.p50 = median(tail ? path.p99 : path.p50);
        record.limit = median(tail ? alone_of(path).p99 : alone_of(path).p50);
        record.ratio = median(tail ? path.p99_ratio : path.p50_ratio);
      }
      if (path.slices - path.disturbed < kSlicesMin) record.remove_figures();
      list.push_back(record);
      if (path.p50_to_control.empty() || !record.has_figures()) continue;
      record.metric += "_attack";
      record.baseline = session_.path(path.index).info().more_baselines.front();
      record.limit = median(tail ? path.control_p99 : path.control_p50);
      record.ratio = median(tail ? path.p99_to_control : path.p50_to_control);
      list.push_back(record);
    }
  }

  Record share_of(const PathUnderLoad& path) const {
    Record record = record_of(path, "share", "%");
    record.baseline = "all that the engine sent";
    record.summary = summarize_rates(path.shares);
    record.limit = 100;
    if (!path.shares.empty()) record.ratio = record.summary.p50 / 100;
    if (path.shares.size() < kSlicesMin) record.remove_figures();
    return record;
  }

  Session& session_;
  const Benchmark& benchmark_;
  uint32_t size_;
  const MeasureOptions& options_;
  std::map<size_t, PathUnderLoad> alone_;  // by path
  std::vector<PathUnderLoad> paths_;
};

}  // namespace

Records measure_fairness(Session& session, const Benchmark& benchmark, uint32_t size, const PathIndices& paths,
                         const MeasureOptions& options) {
  return FairnessMeasurement(session, benchmark, size, options).run(paths);
}

}  // namespace unet::bench
