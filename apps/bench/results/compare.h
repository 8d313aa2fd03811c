// compare.h - `unet-bench compare`: whether a change made anything slower, by the JSON files of alternating runs of two builds.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "apps/bench/results/points.h"
#include "unet/base/result.h"

namespace unet::bench {

constexpr size_t kFilesMin = 3;  // of each side, for a verdict

struct CompareOptions {
  std::vector<std::string> old_files, new_files;  // one for each run
  std::string json;                               // a file, "-" for stdout, empty: no JSON
  TableStyle table = TableStyle::text;
  double noise = 0.01;  // a share; a change within it is none
  bool all = false;     // lists rows of verdict `same` and rows without figures on a side, too
};

// A list of records for each run of a build.
using Runs = std::vector<std::vector<Point>>;

// In the order of the table. `gone`: a row of our code has figures only in the old files. `moved`: a change that is neither better nor
// worse, or that no change of ours can cause.
enum class Verdict : uint8_t { slower, gone, faster, moved, unknown, same };

// `failed`: a row is slower or gone. `undecided`: no row of our code has enough figures for a verdict, as after a build that does not work.
enum class Conclusion : uint8_t { passed, failed, undecided };

struct Interval {
  double low = NAN, high = NAN;
};

// The new value over the old one. Both may be 0: it is 1 for equal values, and infinite for a new one beside an old 0.
double change_between(double before, double after);

// The 95 % interval of change_between(median(before), median(after)). Each side has one value for each run, and at least one.
//
// This is the percentile bootstrap (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13). It draws runs of each side
// with replacement, with a fixed seed. Runs are drawn, not samples within them, because runs differ by more than their samples do (Kalibera
// and Jones, Rigorous Benchmarking in Reasonable Time, 2013).
Interval interval_of_change(const std::vector<double>& before, const std::vector<double>& after);

// A row of the comparison: one metric of one path at one size.
struct Change {
  std::string name;       // benchmark, path, size, and the metric if its name differs from the benchmark's
  std::string reference;  // the limit, kernel path or bare driver that both sides are divided by; empty: none
  std::string old_text, new_text;
  double change = NAN;    // the new value over the old one
  Interval interval;      // known with kFilesMin files of each side
  Verdict verdict = Verdict::unknown;
  bool ours = true;       // false: no code of ours is measured
};

struct Comparison {
  std::vector<Change> rows;  // by verdict, then the worst first
  std::vector<std::string> only_old, only_new;  // names of rows; those that are gone are not among them
  std::vector<std::string> notes;               // sentences about machines and commits
};

// A row's value in a run is its ratio to a reference of the same run, because the machine's speed jumps between runs. A ratio to another
// path of ours would hide a change of both: the value is then the median.
Comparison compare(const Runs& before, const Runs& after, double noise);

size_t count_of(const Comparison& comparison, Verdict verdict);

Conclusion conclusion_of(const Comparison& comparison);

// The table, and below it what it leaves out, the notes, and the result in words.
std::string to_text(const Comparison& comparison, const CompareOptions& options);

// An object: rows (name, reference, old, new, change, low, high, verdict, ours), only_old, only_new, notes, and the result in words.
std::string to_json(const Comparison& comparison);

// A report counts as the runs of its rounds. Fails if a file is neither a report nor a list of records, or is named twice on one side.
Result<Comparison> compare_files(const CompareOptions& options);

}  // namespace unet::bench
