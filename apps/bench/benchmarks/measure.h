// measure.h - the method: repetitions of interleaved slices of a few milliseconds, each between two slices of the limit.
//
//   repetition:  limit | path 1 | limit | path 2 | limit | ... | limit | path 1 | ...
//
// Absolute times of a shared machine jump by 5x from one second to the next; ratios within a few milliseconds do not.
// Slices around which the limit moved are dropped and counted. Both cores spin between slices (session.h).
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "apps/bench/benchmarks/benchmarks.h"
#include "apps/bench/frame/session.h"
#include "apps/bench/results/report.h"

namespace unet::bench {

constexpr double kPatience = 4;  // times the time that --seconds gives: what is disturbed so often goes on without more slices
constexpr size_t kRoundsMin = 3;  // slices of each path in a repetition, while kPatience lasts

struct MeasureOptions {
  double seconds = 0.5;   // per path and size, over all repetitions, the limit included
  uint32_t repeat = 5;
  std::string command;    // for the records
  std::vector<std::string> conditions{};  // of `am-loss` and `tcp-loss`: patterns; empty: all
};

// Measures one benchmark at one size over the paths of `paths` (indices into the session) that can do it. A path
// that cannot, or fails, is named on stderr and left out. An error ends the run (the session is over, or the limit failed).
Result<std::vector<Record>> measure(Session& session, const Benchmark& benchmark, uint32_t size,
                                    const std::vector<size_t>& paths, const MeasureOptions& options);

// A record that says what was measured, how and with which settings, and no figure yet. Its metric is the benchmark's.
Record record_without_figures(const Benchmark& benchmark, const PathInfo& info, uint32_t size, const MeasureOptions& options);

// A record of values that were measured one by one, such as one for each repetition.
Record record_of_values(const Benchmark& benchmark, const PathInfo& info, uint32_t size, const MeasureOptions& options,
                        const std::string& metric, const std::string& unit, const std::vector<double>& values);

// Counts the slices of these repetitions in a record. Takes its figures away if too few slices are behind them.
void count_slices(Record& record, const std::vector<Repetition>& repetitions);

// The session's path of this name; path_count() when there is none.
size_t find_path(const Session& session, const std::string& path);

// The index of the path that the others are compared with; an error when it cannot be measured.
Result<size_t> find_limit(const Session& session, const std::string& path);

// How long a slice of a path takes, and so how many iterations it gets; adapts as the machine changes.
class Pace {
 public:
  Pace(Workload workload, uint32_t size, double target_ns, uint32_t condition = 0)
      : workload_(workload), size_(size), condition_(condition), target_ns_(target_ns) {}

  // Grows slices until they last about as long as they should. Also the path's warm-up.
  Status calibrate(Session& session, size_t index);
  // Round trips timed in batches of about 2 us, or one by one.
  Slice batched() const;
  Slice single() const;
  void learn(const Slice& slice, double elapsed_ns);

 private:
  Slice slice_of(uint64_t iterations, uint32_t batch) const;
  Workload workload_;
  uint32_t size_, condition_;
  double target_ns_;
  double ns_per_iteration_ = 0;
};

// Whether another process had one of the cores for too long in a slice of this path, by the rule of stats.h.
bool was_disturbed(const Session& session, size_t index, const Session::SliceResult& result);

// Nanoseconds of a number of cycles().
double to_ns(uint64_t cycle_count);

// The values of one slice in the unit of its workload: of latencies one per sample, of the others one.
std::vector<double> values_of(const Slice& slice, const Session::SliceResult& result);

}  // namespace unet::bench
