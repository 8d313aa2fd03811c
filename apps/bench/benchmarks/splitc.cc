// splitc.cc - per repetition, path and kind of access: a slice between two slices of what this kind is compared with.
#include "apps/bench/benchmarks/methods.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace unet::bench {

namespace {

// Slices of a path and of its limit last equally long: the first pass over a region that the other side has written is the slowest.
constexpr double kSplitcSliceNs = 1e6;
constexpr uint32_t kWord = 8, kBulk = 65536;  // bytes

// The path that an access is compared with.
struct Limit {
  const char* path;
  Workload workload;
};
constexpr Limit kMiss{"limit-miss", Workload::word_read};
constexpr Limit kTrip{"limit-pingpong", Workload::rtt};
constexpr Limit kCopyOut{"limit-get", Workload::get};
constexpr Limit kCopyIn{"limit-put", Workload::put};

struct Access {
  const char* metric;
  const char* unit;
  Workload workload;
  uint32_t size;
  Relation relation;
  Limit limit;   // a read by messages has the round trip of an Active Message instead: the path's baseline
};
constexpr std::array kAccesses{
    Access{"read", "ns", Workload::word_read, kWord, Relation::over, kMiss},
    Access{"get", "words/s", Workload::word_get, kWord, Relation::product, kTrip},
    Access{"put", "words/s", Workload::word_put, kWord, Relation::product, kTrip},
    Access{"store", "words/s", Workload::word_store, kWord, Relation::product, kTrip},
    Access{"bulk_get", "GB/s", Workload::get, kBulk, Relation::over, kCopyOut},
    Access{"bulk_put", "GB/s", Workload::put, kBulk, Relation::over, kCopyIn},
    Access{"barrier", "ns", Workload::barrier, kWord, Relation::over, kTrip},
};

constexpr double kAccessCount = kAccesses.size();

struct Row {
  const Access* access;
  size_t index, limit_index;
  std::string limit_path;
  Pace pace, limit_pace;
  std::vector<Repetition> repetitions = {};
  std::vector<double> values = {};
};

class Splitc {
 public:
  Splitc(Session& session, const Benchmark& benchmark, const MeasureOptions& options)
      : session_(session), benchmark_(benchmark), options_(options) {}

  Result<std::vector<Record>> run(const std::vector<size_t>& paths) {
    for (const size_t index : paths) {
      for (const Access& access : kAccesses) {
        if (!session_.refusal(index).empty()) continue;
        if (auto added = add(index, access); !added) return tl::unexpected(added.error());
      }
    }
    for (uint32_t i = 0; i < options_.repeat && !session_.over(); ++i) {
      if (auto done = repetition(); !done) return tl::unexpected(done.error());
    }
    if (session_.over()) return fail(Errc::disconnected, session_.over_text());
    for (Row& row : rows_) drop_unusual(row.repetitions, usual_limit(row.repetitions), row.values);
    std::vector<Record> records;
    for (const Row& row : rows_) records.push_back(record_of(row));
    return records;
  }

 private:
  // Adds an access, unless the path or its limit cannot be measured.
  Status add(size_t index, const Access& access) {
    const PathInfo& info = session_.path(index).info();
    const bool asks = access.workload == Workload::word_read && !info.baseline.empty();
    const std::string limit = asks ? info.baseline : access.limit.path;
    const Workload limit_workload = asks ? Workload::am_short : access.limit.workload;
    const auto found = find_limit(session_, limit);
    if (!found) return complain({Errc::unavailable, info.name + ": " + access.metric + " left out: " + found.error().text});
    const size_t limit_index = *found;
    Row row{.access = &access,
            .index = index,
            .limit_index = limit_index,
            .limit_path = limit,
            .pace = Pace(access.workload, access.size, kSplitcSliceNs),
            .limit_pace = Pace(limit_workload, access.size, kSplitcSliceNs)};
    if (auto done = row.limit_pace.calibrate(session_, limit_index); !done) return done;
    if (auto done = row.pace.calibrate(session_, index); !done) return complain(done.error());
    rows_.push_back(std::move(row));
    return {};
  }
  Status complain(const Error& error) const {
    if (session_.over()) return tl::unexpected(error);
    std::fprintf(stderr, "unet-bench: splitc: %s\n", error.text.c_str());
    return {};
  }

  struct Value {
    double value = 0;  // the median of a slice, in the unit of its workload
    bool disturbed = false;
  };
  Result<Value> value_of(size_t index, Pace& pace) {
    const Slice slice = pace.batched();
    auto result = session_.run(index, slice);
    if (!result) return tl::unexpected(result.error());
    const std::vector<double> values = values_of(slice, *result);
    if (values.empty()) return fail(Errc::protocol, session_.path(index).info().name + ": a slice without a result");
    const bool disturbed = was_disturbed(session_, index, *result);
    if (!disturbed) pace.learn(slice, to_ns(result->outcome.cycles));
    return Value{median(values), disturbed};
  }

  Status measure_row(Row& row) {
    const auto before = value_of(row.limit_index, row.limit_pace);
    if (!before) return tl::unexpected(before.error());
    const auto own = value_of(row.index, row.pace);
    if (!own) return tl::unexpected(own.error());
    const auto after = value_of(row.limit_index, row.limit_pace);
    if (!after) return tl::unexpected(after.error());
    const bool disturbed = before->disturbed || own->disturbed || after->disturbed;
    if (row.repetitions.back().add({own->value, before->value, after->value, disturbed})) row.values.push_back(own->value);
    return {};
  }

  bool enough() const {
    return std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.repetitions.back().values.size() >= kRoundsMin; });
  }

  Status repetition() {
    const double budget_ns = options_.seconds * 1e9 * static_cast<double>(rows_.size()) / kAccessCount / options_.repeat;
    for (Row& row : rows_) row.repetitions.emplace_back();
    const Nanoseconds start = monotonic_now();
    const auto spent = [&] { return static_cast<double>(monotonic_now() - start) / budget_ns; };
    do {
      for (size_t i = 0; i < rows_.size();) {
        const Status done = measure_row(rows_[i]);
        if (done) {
          ++i;
          continue;
        }
        if (auto out = complain(done.error()); !out) return out;
        const size_t index = rows_[i].index;
        if (session_.refusal(index).empty()) return done;  // the limit failed
        std::erase_if(rows_, [&](const Row& row) { return row.index == index; });
        i = 0;
      }
    } while (!rows_.empty() && (spent() < 1 || (!enough() && spent() < kPatience)));
    return {};
  }

  Record record_of(const Row& row) const {
    Record record = record_without_figures(benchmark_, session_.path(row.index).info(), row.access->size, options_);
    record.metric = row.access->metric;
    record.unit = row.access->unit;
    record.summary = record.unit == "ns" ? summarize(row.values) : summarize_rates(row.values);
    record.baseline = row.limit_path;
    record.summary.p50 = median_of(row.repetitions, &Repetition::p50);
    record.limit = median_of(row.repetitions, &Repetition::limit);
    record.ratio = ratio_to_limit(row.repetitions, row.access->relation);
    count_slices(record, row.repetitions);
    return record;
  }

  Session& session_;
  const Benchmark& benchmark_;
  const MeasureOptions& options_;
  std::vector<Row> rows_;
};

}  // namespace

Records measure_splitc(Session& session, const Benchmark& benchmark, uint32_t, const PathIndices& paths, const MeasureOptions& options) {
  return Splitc(session, benchmark, options).run(paths);
}

}  // namespace unet::bench
