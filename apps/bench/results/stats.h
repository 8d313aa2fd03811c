// stats.h - percentiles, and the rule that makes numbers of a jumping machine comparable: each slice stands between two
// slices of the limit, and counts only when the limit did not move. Pure functions; the harness feeds them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace unet::bench {

// A slice is dropped when the limit after it differs from the limit before it by more than this share of the smaller one.
constexpr double kLimitTolerance = 0.25;

// The value that a share `fraction` (0 ... 1) of the values does not exceed (nearest rank). Reorders `values`; not empty.
double percentile(std::vector<double>& values, double fraction);

// The median of a copy, which this sorts.
double median(std::vector<double> values);

// The median of the known values; nothing if none is known.
std::optional<double> known_median(const std::vector<std::optional<double>>& values);

// Processor time of the two sides and of the processes that serve a path, in ns for each message or for each byte (s/GB).
struct CpuUse {
  double a = 0, b = 0, services = 0;
  double sum() const { return a + b + services; }
};

// The median of each of the three. `uses` may not be empty.
CpuUse median_of(const std::vector<CpuUse>& uses);

// A percentile p needs 1 / (1 - p) samples, and is absent with fewer: p99 needs 100 of them, p999 needs 1,000.
struct Summary {
  double p50 = 0;
  std::optional<double> p99, p999;
  double mean = 0;
  uint64_t samples = 0;
};

// A figure needs this many kept slices in a run. One undisturbed slice says nothing about a path.
constexpr size_t kSlicesMin = 3;

// The shares of samples at which a distribution is recorded: the median, the body around it, and a tail by powers of ten.
constexpr std::array<double, 8> kDistribution = {0.01, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999};

// The values that these shares of the samples do not exceed, in order; NaN where there are too few samples for the share. Empty without
// samples.
std::vector<double> distribution(std::vector<double> values);

// For latencies: one sample in a hundred exceeds p99. All zero without samples.
Summary summarize(std::vector<double> values);

// For rates and bandwidths, where low is bad: 99 slices in a hundred reached p99.
Summary summarize_rates(std::vector<double> values);

// A slice is also dropped when another process had one of the two cores for more than this share of it. A receiver that sleeps
// always waits a little for its core when it is woken: that wait belongs to the path.
constexpr double kDisturbedShare = 0.05;
constexpr double kDisturbedShareSleeping = 0.2;

// One slice of one path: its own p50, and the limit's p50 taken just before and just after it.
struct SliceValue {
  double value = 0;
  double limit_before = 0;
  double limit_after = 0;
  bool disturbed = false;  // by another process on one of the cores
};

// A kept slice is dropped at the end of the run when its limit is more than this factor away from the run's median limit.
// The two slices of the limit may agree while the machine is in another state than in the rest of the run.
constexpr double kUsualFactor = 2;

// Whether the limit stood still around this slice.
bool limit_held(const SliceValue& slice, double tolerance = kLimitTolerance);

// One repetition, from its kept slices.
struct Repetition {
  std::vector<double> values;  // p50 of each kept slice
  std::vector<double> limits;  // the limit around each kept slice
  uint32_t dropped = 0;        // slices around which the limit moved
  uint32_t disturbed = 0;      // slices in which another process had a core

  // Adds a slice or counts it as dropped; returns whether it was kept.
  bool add(const SliceValue& slice, double tolerance = kLimitTolerance);
  bool empty() const { return values.empty(); }
  double p50() const { return median(values); }
  double limit() const { return median(limits); }
};

// Median of a figure, such as &Repetition::p50, over the repetitions that kept at least one slice; 0 when none did.
double median_of(const std::vector<Repetition>& repetitions, double (Repetition::*figure)() const);

// Whether enough slices were kept to print, draw or compare the figures of these repetitions.
bool has_figure(const std::vector<Repetition>& repetitions);

// The median limit over the kept slices of all repetitions; 0 without any.
double usual_limit(const std::vector<Repetition>& repetitions);

// Drops each kept slice beside which the limit was unusual for the run. Returns for each of these slices whether it stays.
std::vector<bool> drop_unusual(std::vector<Repetition>& repetitions, double usual);

// Drops the same slices, and their entries in `parallel`, which has an entry for each kept slice, in order.
template <typename T>
void drop_unusual(std::vector<Repetition>& repetitions, double usual, std::vector<T>& parallel) {
  const std::vector<bool> stays = drop_unusual(repetitions, usual);
  std::vector<T> left;
  for (size_t i = 0; i < parallel.size(); ++i) {
    if (stays[i]) left.push_back(std::move(parallel[i]));
  }
  parallel = std::move(left);
}

// The ratio of a value to its limit. `over`: for times (2.0 is twice the limit's time) and bandwidths (0.9 is nine tenths of the limit's
// bandwidth). `product`: for rates per second and a round-trip time in ns (messages per round trip).
enum class Relation { over, product };

// Median over the repetitions that kept at least one slice; nothing without a figure.
std::optional<double> ratio_to_limit(const std::vector<Repetition>& repetitions, Relation relation);
// Relates to another path measured in the same repetitions (by index), with `over`. Nothing unless both have a figure.
std::optional<double> ratio_to_baseline(const std::vector<Repetition>& repetitions,
                                        const std::vector<Repetition>& baseline);

}  // namespace unet::bench
