// measure.cc - slices, repetitions and their records.
#include "apps/bench/benchmarks/measure.h"

#include <algorithm>

#include "apps/bench/machine/cpu_time.h"
#include "apps/bench/results/sizes.h"
#include "apps/bench/workloads/messages.h"
#include "unet/base/time.h"

namespace unet::bench {

namespace {

constexpr double kSliceNs = 2e6;         // of a path
constexpr double kLimitSliceNs = 0.8e6;  // of the limit, which stands beside each slice
constexpr double kStreamLimitNs = 1.5e6; // a stream must fill its ring some times over
constexpr int kLimitTries = 4;           // of a limit slice that another process disturbed
constexpr uint64_t kBurstsMin = 64;      // of a slice of a stream: fewer would measure its start
constexpr double kBatchNs = 2e3;
constexpr uint32_t kBatchMax = 64;
constexpr uint64_t kSamplesPerSlice = 30'000;

struct SliceValues {
  double p50 = 0;
  std::vector<double> batched;  // for p50 and mean
  std::vector<double> single;   // for p99 and p999
  CpuUse cpu;
  bool disturbed = false;
};

// One path in a measurement. The limit is one too.
struct Participant {
  size_t index = 0;
  Workload workload = Workload::rtt;  // the benchmark's; else a round trip as a rate's limit, or messages beside a put
  Pace pace;
  std::vector<Repetition> repetitions;
  std::vector<SliceValues> kept;  // an entry for each kept slice
};

constexpr Workload kCategories[] = {Workload::am_short, Workload::am_medium, Workload::am_long};
// The category's suffix of a metric's name.
const char* suffix_of(Workload workload) {
  switch (workload) {
    case Workload::am_short: return kShort;
    case Workload::am_medium: return kMedium;
    case Workload::am_long: return kLong;
    default: return "";
  }
}
bool is_round_trip(Workload workload) {
  return workload == Workload::rtt || workload == Workload::barrier || workload == Workload::call || workload == Workload::technique ||
         *suffix_of(workload) != 0;
}
bool is_latency(Workload workload) {
  return is_round_trip(workload) || workload == Workload::wakeup || workload == Workload::connect || workload == Workload::word_read ||
         workload == Workload::call_part || workload == Workload::callers;
}
bool times_each(const Benchmark& benchmark) { return is_latency(benchmark.workload); }

class Measurement {
 public:
  Measurement(Session& session, const Benchmark& benchmark, uint32_t size, const MeasureOptions& options)
      : session_(session), benchmark_(benchmark), size_(size), options_(options) {}

  Result<std::vector<Record>> run(const std::vector<size_t>& paths) {
    if (auto ready = prepare(paths); !ready) return tl::unexpected(ready.error());
    for (uint32_t i = 0; i < options_.repeat; ++i) {
      if (auto done = repetition(); !done) return tl::unexpected(done.error());
    }
    const double usual = usual_limit(limit_[0].repetitions);
    for (auto* group : {&limit_, &participants_}) {
      for (Participant& participant : *group) drop_unusual(participant.repetitions, usual, participant.kept);
    }
    return records();
  }

 private:
  Status prepare(const std::vector<size_t>& paths);
  Status repetition();
  Status round();
  Result<SliceValues> slice_of(Participant& participant);
  Result<SliceValues> limit_slice();
  bool disturbed(const Participant& participant, const Session::SliceResult& result) const {
    return was_disturbed(session_, participant.index, result);
  }
  // Processor time of the processes that serve a path of sockets.
  Nanoseconds services_time(size_t index) const {
    if (!benchmark_.of_sockets()) return 0;
    return cpu_time_of(session_.path(index).service_processes()).value_or(0);
  }
  bool enough() const;
  static void keep(Participant& participant, SliceValues values, double before, double after);
  Status leave_out(const Participant& participant, const Error& error);
  std::vector<Record> records() const;
  Record record_of(const Participant& participant) const;
  bool compare_with_baseline(const Participant& participant, Record& record) const {
    return compare_with(session_.path(participant.index).info().baseline, participant, record);
  }
  bool compare_with(const std::string& path, const Participant& participant, Record& record) const;
  void compare_with_messages(const Participant& participant, Record& record) const;
  Status add_participant(size_t index, Workload workload);
  Status add_categories(size_t index);
  Participant make_participant(size_t index, Workload workload, double target_ns) const {
    return {index, workload, Pace(workload, size_, target_ns), {}, {}};
  }
  bool is_extra(const Participant& participant) const { return participant.workload != benchmark_.workload; }
  const std::string& path_of(const Participant& participant) const {
    return session_.path(participant.index).info().name;
  }

  Session& session_;
  const Benchmark& benchmark_;
  uint32_t size_;
  const MeasureOptions& options_;
  std::vector<Participant> limit_;  // exactly one
  std::vector<Participant> participants_;
  double limit_now_ = 0;            // of the last limit slice
};

Status Measurement::leave_out(const Participant& participant, const Error& error) {
  if (session_.over()) return tl::unexpected(error);
  std::fprintf(stderr, "unet-bench: %s %s: %s\n", benchmark_.name.c_str(), format_size(size_).c_str(), error.text.c_str());
  const size_t index = participant.index;
  std::erase_if(participants_, [&](const Participant& other) { return other.index == index; });
  return {};
}

Status Measurement::prepare(const std::vector<size_t>& paths) {
  const auto limit = find_limit(session_, benchmark_.limit_path(size_));
  if (!limit) return tl::unexpected(limit.error());
  const bool product = benchmark_.relation == Relation::product;  // the limit of a rate is a round trip
  limit_.push_back(make_participant(*limit, product ? Workload::rtt : benchmark_.workload,
                                    times_each(benchmark_) || product ? kLimitSliceNs : kStreamLimitNs));
  if (auto done = limit_[0].pace.calibrate(session_, *limit); !done) return done;
  for (size_t index : paths) {
    if (index == *limit || !session_.refusal(index).empty()) continue;
    const Path& path = session_.path(index);
    if (benchmark_.layers() && benchmark_.workload == Workload::rtt && path.info().can(Ability::layer)) {
      if (auto added = add_categories(index); !added) return added;
      continue;
    }
    if (auto can = path.supports(benchmark_.workload, size_); !can) {
      if (path.info().kind == Kind::limit) continue;  // the limit of other sizes
      if (benchmark_.layers() && !path.info().can(Ability::layer)) continue;  // a raw channel has no such workload
      std::fprintf(stderr, "unet-bench: %s %s: %s left out: %s\n", benchmark_.name.c_str(), format_size(size_).c_str(),
                   path.info().name.c_str(), can.error().text.c_str());
      continue;
    }
    if (auto added = add_participant(index, benchmark_.workload); !added) return added;
    const bool needs_messages = benchmark_.workload == Workload::put && !benchmark_.layers() && path.info().wire;
    if (!needs_messages || !session_.refusal(index).empty()) continue;
    if (auto added = add_participant(index, Workload::bandwidth); !added) return added;
  }
  return {};
}

// Round trips of each category of messages that has this size.
Status Measurement::add_categories(size_t index) {
  for (const Workload category : kCategories) {
    if (!session_.refusal(index).empty() || !session_.path(index).supports(category, size_)) continue;
    if (auto added = add_participant(index, category); !added) return added;
  }
  return {};
}

Status Measurement::add_participant(size_t index, Workload workload) {
  participants_.push_back(make_participant(index, workload, kSliceNs));
  const Participant participant = participants_.back();
  auto done = participants_.back().pace.calibrate(session_, index);
  return done ? done : leave_out(participant, done.error());
}

Result<SliceValues> Measurement::slice_of(Participant& participant) {
  SliceValues values;
  const Slice slice = participant.pace.batched();
  const Nanoseconds services = services_time(participant.index);
  auto result = session_.run(participant.index, slice);
  if (!result) return tl::unexpected(result.error());
  // The processor time is that of the warm-up's messages, too.
  const double count = static_cast<double>(slice.iterations + slice.warm_up) * (slice.workload == Workload::bandwidth ? slice.size : 1);
  const auto each = [&](Nanoseconds used) { return static_cast<double>(used) / count; };
  values.cpu = {.a = each(result->cpu_a), .b = each(result->cpu_b), .services = each(services_time(participant.index) - services)};
  values.batched = values_of(slice, *result);
  if (values.batched.empty()) return fail(Errc::protocol, path_of(participant) + ": a slice without a result");
  values.p50 = median(values.batched);
  values.disturbed = disturbed(participant, *result);
  if (!values.disturbed) participant.pace.learn(slice, to_ns(result->outcome.cycles));
  if (!times_each(benchmark_)) return values;
  if (slice.batch == 1) {
    values.single = values.batched;
    return values;
  }
  const Slice alone = participant.pace.single();
  result = session_.run(participant.index, alone);
  if (!result) return tl::unexpected(result.error());
  values.single = values_of(alone, *result);
  values.disturbed = values.disturbed || disturbed(participant, *result);
  return values;
}

Result<SliceValues> Measurement::limit_slice() {
  Result<SliceValues> values = slice_of(limit_[0]);
  for (int i = 1; i < kLimitTries && values && values->disturbed; ++i) values = slice_of(limit_[0]);
  return values;
}

void Measurement::keep(Participant& participant, SliceValues values, double before, double after) {
  const SliceValue slice{values.p50, before, after, values.disturbed};
  if (participant.repetitions.back().add(slice)) participant.kept.push_back(std::move(values));
}

// Every participant once, between limit slices.
Status Measurement::round() {
  for (size_t i = 0; i < participants_.size();) {
    const double before = limit_now_;
    auto values = slice_of(participants_[i]);
    if (!values) {
      if (auto out = leave_out(Participant(participants_[i]), values.error()); !out) return out;
      continue;
    }
    auto limit = limit_slice();
    if (!limit) return tl::unexpected(limit.error());
    limit_now_ = limit->p50;
    keep(participants_[i], std::move(*values), before, limit_now_);
    keep(limit_[0], std::move(*limit), before, limit_now_);  // its own row: the slices that stood still
    ++i;
  }
  return {};
}

bool Measurement::enough() const {
  const auto& all = participants_.empty() ? limit_ : participants_;
  return std::all_of(all.begin(), all.end(), [](const Participant& participant) {
    return participant.repetitions.back().values.size() >= kRoundsMin;
  });
}

Status Measurement::repetition() {
  const double count = static_cast<double>(std::max<size_t>(1, participants_.size()));
  const double budget_ns = options_.seconds * 1e9 * count / options_.repeat;
  limit_[0].repetitions.emplace_back();
  for (Participant& participant : participants_) participant.repetitions.emplace_back();
  const Nanoseconds start = monotonic_now();
  const auto spent = [&] { return static_cast<double>(monotonic_now() - start) / budget_ns; };
  do {
    const double before = limit_now_;
    auto limit = limit_slice();
    if (!limit) return tl::unexpected(limit.error());
    limit_now_ = limit->p50;
    if (participants_.empty()) keep(limit_[0], std::move(*limit), before, limit_now_);  // nothing else was asked for
    if (auto done = round(); !done) return done;
  } while (spent() < 1 || (!enough() && spent() < kPatience));
  return {};
}

Record Measurement::record_of(const Participant& participant) const {
  const PathInfo& info = session_.path(participant.index).info();
  Record record = record_without_figures(benchmark_, info, size_, options_);
  record.metric += suffix_of(participant.workload);
  std::vector<double> batched, single;
  std::vector<CpuUse> cpu;
  for (const SliceValues& slice : participant.kept) {
    batched.insert(batched.end(), slice.batched.begin(), slice.batched.end());
    single.insert(single.end(), slice.single.begin(), slice.single.end());
    cpu.push_back(slice.cpu);
  }
  record.summary = benchmark_.is_rate() ? summarize_rates(std::move(batched)) : summarize(std::move(batched));
  if (!single.empty()) {
    const Summary tail = summarize(single);
    record.summary.p99 = tail.p99;
    record.summary.p999 = tail.p999;
    record.distribution = distribution(std::move(single));
  }
  record.summary.p50 = median_of(participant.repetitions, &Repetition::p50);
  record.limit = median_of(participant.repetitions, &Repetition::limit);
  record.ratio = ratio_to_limit(participant.repetitions, benchmark_.relation);
  record.baseline = benchmark_.limit_path(size_);
  if (benchmark_.of_sockets() && info.kind != Kind::limit && !cpu.empty()) record.cpu = median_of(cpu);
  if (info.wire && benchmark_.workload == Workload::put && !benchmark_.layers()) compare_with_messages(participant, record);
  if (record.path == record.baseline && record.ratio) record.ratio = 1;  // by definition; the slices around it are its own
  if (!info.can(Ability::layer)) compare_with_baseline(participant, record);
  count_slices(record, participant.repetitions);
  return record;
}

// False if there is none, or it does not take part.
bool Measurement::compare_with(const std::string& path, const Participant& participant, Record& record) const {
  const auto baseline =
      std::find_if(participants_.begin(), participants_.end(), [&](const Participant& other) { return path_of(other) == path; });
  if (baseline == participants_.end()) return false;
  record.baseline = path;
  record.ratio = ratio_to_baseline(participant.repetitions, baseline->repetitions);
  return true;
}

// put over a wire: its row compares with the row of messages of the same size, which compares with nothing.
void Measurement::compare_with_messages(const Participant& participant, Record& record) const {
  record.ratio = std::nullopt;
  record.baseline = is_extra(participant) ? "" : kOwnMessages;
  if (is_extra(participant)) record.metric = kOwnMessages;
  for (const Participant& other : participants_) {
    const bool messages = other.index == participant.index && is_extra(other);
    if (messages && !is_extra(participant)) record.ratio = ratio_to_baseline(participant.repetitions, other.repetitions);
  }
}

std::vector<Record> Measurement::records() const {
  std::vector<Record> list;
  if (benchmark_.relation == Relation::over) list.push_back(record_of(limit_[0]));
  for (const Participant& participant : participants_) {
    list.push_back(record_of(participant));
    const PathInfo& info = session_.path(participant.index).info();
    // A layer has two records: over the path that it stands on, and over the limit.
    if (info.can(Ability::layer) && compare_with_baseline(participant, list.back())) list.insert(list.end() - 1, record_of(participant));
    for (const std::string& path : info.more_baselines) {
      Record record = record_of(participant);
      if (compare_with(path, participant, record)) list.push_back(std::move(record));
    }
  }
  return list;
}

}  // namespace

Record record_without_figures(const Benchmark& benchmark, const PathInfo& info, uint32_t size, const MeasureOptions& options) {
  Record record;
  record.bench = benchmark.name;
  record.path = info.name;
  record.size = size;
  record.metric = benchmark.metric;
  record.unit = benchmark.unit;
  record.command = options.command;
  record.setting = info.setting;
  return record;
}

Record record_of_values(const Benchmark& benchmark, const PathInfo& info, uint32_t size, const MeasureOptions& options,
                        const std::string& metric, const std::string& unit, const std::vector<double>& values) {
  Record record = record_without_figures(benchmark, info, size, options);
  record.metric = metric;
  record.unit = unit;
  record.summary = summarize(values);
  record.slices = values.size();
  return record;
}

void count_slices(Record& record, const std::vector<Repetition>& repetitions) {
  for (const Repetition& repetition : repetitions) {
    record.dropped += repetition.dropped;
    record.disturbed += repetition.disturbed;
    record.slices += repetition.dropped + repetition.disturbed + repetition.values.size();
  }
  if (!has_figure(repetitions)) record.remove_figures();
}

Result<std::vector<Record>> measure(Session& session, const Benchmark& benchmark, uint32_t size,
                                    const std::vector<size_t>& paths, const MeasureOptions& options) {
  return Measurement(session, benchmark, size, options).run(paths);
}

bool was_disturbed(const Session& session, size_t index, const Session::SliceResult& result) {
  if (session.cores().alone()) return false;  // the two sides take turns on it
  const PathInfo& info = session.path(index).info();
  if (info.shares_cores) return false;
  const double share = info.can(Ability::sleeps) ? kDisturbedShareSleeping : kDisturbedShare;
  return static_cast<double>(result.waited) > share * static_cast<double>(result.elapsed);
}

double to_ns(uint64_t cycle_count) { return static_cast<double>(cycle_count) * 1e9 / cycles_per_second(); }

std::vector<double> values_of(const Slice& slice, const Session::SliceResult& result) {
  std::vector<double> values;
  if (is_latency(slice.workload)) {
    values.reserve(result.samples->size());
    for (uint64_t sample : *result.samples) values.push_back(to_ns(sample) / slice.batch);
    return values;
  }
  const double ns = to_ns(result.outcome.cycles);
  const double messages = static_cast<double>(result.outcome.messages);
  if (ns <= 0 || messages <= 0) return values;
  values.push_back(is_counted(slice.workload) ? messages * 1e9 / ns : messages * slice.size / ns);
  return values;
}

size_t find_path(const Session& session, const std::string& path) {
  size_t index = 0;
  while (index < session.path_count() && session.path(index).info().name != path) ++index;
  return index;
}

Result<size_t> find_limit(const Session& session, const std::string& path) {
  const size_t index = find_path(session, path);
  const bool there = index < session.path_count();
  if (there && session.refusal(index).empty()) return index;
  return fail(Errc::unavailable, path + ", the limit, cannot be measured: " + (there ? session.refusal(index) : "not there"));
}

Slice Pace::slice_of(uint64_t iterations, uint32_t batch) const {
  Slice slice;
  slice.workload = workload_;
  slice.size = size_;
  slice.condition = condition_;
  slice.batch = batch;
  slice.iterations = std::max<uint64_t>(1, iterations / batch) * batch;
  if (is_stream(workload_)) slice.iterations = std::max<uint64_t>(slice.iterations, kBurstsMin * burst_messages(size_));
  slice.warm_up = std::max<uint64_t>(1, slice.iterations / 8);
  return slice;
}

Slice Pace::batched() const {
  uint32_t batch = workload_ == Workload::word_read ? kChainMax : 1;
  if (is_round_trip(workload_)) {
    batch = static_cast<uint32_t>(std::clamp(kBatchNs / ns_per_iteration_, 1.0, static_cast<double>(kBatchMax)));
  }
  return slice_of(static_cast<uint64_t>(target_ns_ / ns_per_iteration_), batch);
}

Slice Pace::single() const {
  const double iterations = target_ns_ / 2 / ns_per_iteration_;
  return slice_of(std::min(kSamplesPerSlice, static_cast<uint64_t>(iterations)), 1);
}

void Pace::learn(const Slice& slice, double elapsed_ns) {
  // The clock sees a part of a wake-up only: the calibration stands.
  if (elapsed_ns <= 0 || workload_ == Workload::wakeup) return;
  const double now = elapsed_ns / static_cast<double>(slice.iterations);
  // Follows a faster path at once and a slower one gradually: if a stalled slice made the next ones short, they would measure
  // little but how a stream starts, look slow too, and so on.
  constexpr double kSlowdown = 1.05;
  ns_per_iteration_ = ns_per_iteration_ == 0 ? now : std::min(now, ns_per_iteration_ * kSlowdown);
}

Status Pace::calibrate(Session& session, size_t index) {
  constexpr double kGrowthMax = 16;
  uint64_t iterations = 4;
  for (int i = 0; i < 16; ++i) {
    const Slice slice = slice_of(iterations, 1);
    const Nanoseconds start = monotonic_now();
    auto result = session.run(index, slice);
    if (!result) return tl::unexpected(result.error());
    // The whole exchange, so that a path with slow ends does not make slices much longer than they should be.
    const double elapsed = static_cast<double>(monotonic_now() - start);
    ns_per_iteration_ = elapsed / static_cast<double>(slice.iterations + slice.warm_up);
    if (elapsed >= target_ns_ / 2 || iterations >= kSamplesPerSlice * kBatchMax) break;
    const double growth = std::min(kGrowthMax, target_ns_ / elapsed);
    iterations = static_cast<uint64_t>(static_cast<double>(iterations) * std::max(1.5, growth));
    if (is_latency(workload_)) iterations = std::min<uint64_t>(iterations, kSamplesPerSlice);
  }
  return {};
}

}  // namespace unet::bench
