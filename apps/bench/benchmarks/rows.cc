// rows.cc - per repetition and row: a slice between two slices of what this row is compared with.
#include "apps/bench/benchmarks/rows.h"

#include <algorithm>
#include <cstdio>

namespace unet::bench {

namespace {

// Slices of a path and of its limit last equally long: the first pass over a region that the other side has written is the slowest.
constexpr double kRowSliceNs = 1e6;
constexpr double kCallerNs = 2e3;  // of a slice for each caller: the ends of the last calls are a small part of it

struct Row {
  const RowSpec* spec;
  size_t index, limit_index;
  Pace pace, limit_pace;
  std::vector<Repetition> repetitions = {};
  std::vector<double> values = {};
};

class Rows {
 public:
  Rows(Session& session, const Benchmark& benchmark, double rows_per_path, const MeasureOptions& options)
      : session_(session), benchmark_(benchmark), rows_per_path_(rows_per_path), options_(options) {}

  Result<std::vector<Record>> run(const std::vector<RowSpec>& specs) {
    for (const RowSpec& spec : specs) {
      if (auto added = add(spec); !added) return tl::unexpected(added.error());
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
  static Pace pace_of(const RowSlices& slices) {
    const double callers = slices.workload == Workload::callers_rate ? slices.size : 0;
    return Pace(slices.workload, slices.size, std::max(kRowSliceNs, callers * kCallerNs), slices.condition);
  }

  // Adds a row, unless its path or its limit cannot be measured.
  Status add(const RowSpec& spec) {
    const size_t index = find_path(session_, spec.own.path);
    if (index == session_.path_count() || !session_.refusal(index).empty()) return {};  // the session has said why
    const auto limit = find_limit(session_, spec.limit.path);
    if (!limit) return complain({Errc::unavailable, spec.own.path + ": " + spec.metric + " left out: " + limit.error().text});
    Row row{.spec = &spec, .index = index, .limit_index = *limit, .pace = pace_of(spec.own), .limit_pace = pace_of(spec.limit)};
    if (auto done = row.limit_pace.calibrate(session_, row.limit_index); !done) return complain(done.error());
    if (auto done = row.pace.calibrate(session_, index); !done) return complain(done.error());
    rows_.push_back(std::move(row));
    return {};
  }
  Status complain(const Error& error) const {
    if (session_.over()) return tl::unexpected(error);
    std::fprintf(stderr, "unet-bench: %s: %s\n", benchmark_.name.c_str(), error.text.c_str());
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
    const double value = own->value - (row.spec->difference ? (before->value + after->value) / 2 : 0);
    if (row.repetitions.back().add({value, before->value, after->value, disturbed})) row.values.push_back(value);
    return {};
  }

  bool enough() const {
    return std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.repetitions.back().values.size() >= kRoundsMin; });
  }

  Status repetition() {
    const double budget_ns = options_.seconds * 1e9 * static_cast<double>(rows_.size()) / rows_per_path_ / options_.repeat;
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
        // A path that failed takes its rows out, as a path of its own or as a limit.
        const size_t gone = std::erase_if(rows_, [&](const Row& row) {
          return !session_.refusal(row.index).empty() || !session_.refusal(row.limit_index).empty();
        });
        if (gone == 0) return done;
        i = 0;
      }
    } while (!rows_.empty() && (spent() < 1 || (!enough() && spent() < kPatience)));
    return {};
  }

  Record record_of(const Row& row) const {
    const RowSpec& spec = *row.spec;
    Record record = record_without_figures(benchmark_, session_.path(row.index).info(), spec.own.size, options_);
    if (!spec.path.empty()) record.path = spec.path;
    record.metric = spec.metric;
    record.unit = spec.unit;
    record.summary = record.unit == "ns" ? summarize(row.values) : summarize_rates(row.values);
    record.baseline = spec.baseline.empty() ? spec.limit.path : spec.baseline;
    record.summary.p50 = median_of(row.repetitions, &Repetition::p50);
    record.limit = median_of(row.repetitions, &Repetition::limit);
    record.ratio = ratio_to_limit(row.repetitions, spec.relation);
    count_slices(record, row.repetitions);
    return record;
  }

  Session& session_;
  const Benchmark& benchmark_;
  const double rows_per_path_;
  const MeasureOptions& options_;
  std::vector<Row> rows_;
};

}  // namespace

Result<std::vector<Record>> measure_rows(Session& session, const Benchmark& benchmark, const std::vector<RowSpec>& rows,
                                         double rows_per_path, const MeasureOptions& options) {
  return Rows(session, benchmark, rows_per_path, options).run(rows);
}

}  // namespace unet::bench
