// report.h - results as flat records, JSON, and tables; ratios first. Knows nothing of how they were measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/bench/results/stats.h"

namespace unet::bench {

constexpr uint32_t kTimelineBins = 200;  // ms
constexpr uint32_t kTimelineBefore = 20;

// One path at one size of one benchmark: one object of the JSON list.
struct Record {
  std::string bench, path;
  uint32_t size = 0;
  std::string metric, unit;
  Summary summary;              // p50, p99, p999, mean, samples
  std::vector<double> distribution;  // of single latencies, at kDistribution; empty where only a median was measured
  std::vector<double> timeline;      // of restart: messages in each millisecond, the first kTimelineBefore before the event
  double limit = 0;             // the limit's p50 around the kept slices
  std::optional<double> ratio;  // nothing when every slice was dropped, or nothing to compare with
  std::string baseline;         // what ratio compares with
  std::optional<CpuUse> cpu;    // of sockets
  std::string command;
  std::string setting;          // how the path was set up
  uint64_t slices = 0;          // all: kept, dropped, disturbed
  uint64_t dropped = 0;         // because the limit moved
  uint64_t disturbed = 0;       // dropped because another process had a core

  bool has_figures() const { return summary.samples != 0; }
  void remove_figures() {
    summary = {};
    distribution.clear();
    limit = 0;
    ratio.reset();
    cpu.reset();
  }
};

// The origin of records: the processor and kernel, when they were written, and the commit that unet-bench was built from.
struct Origin {
  std::string machine, date, commit;
};

// put over a wire: the metric of the rows for messages of the same size, and the baseline of the rows for put.
constexpr const char* kOwnMessages = "bandwidth_of_messages";

// am-loss: the baseline of the rows that compare a path with itself.
constexpr const char* kWholeWire = "the whole wire";

// Suffixes of the metric of round trips for the categories of Active Messages.
constexpr const char* kShort = "_short";
constexpr const char* kMedium = "_medium";
constexpr const char* kLong = "_long";

// A list of flat objects with the fields bench, path, size, metric, unit, p50, p99, p999, mean, samples, limit, ratio, baseline, command,
// setting, slices, dropped, disturbed, cpu, cpu_a, cpu_b, cpu_services, distribution (the values at kDistribution) and timeline.
// Figures are null if fewer than kSlicesMin slices were left, percentiles if there are too few samples (Summary), the ratio without a
// baseline. The cpu fields are ns for each message or byte: cpu is the sum of the medians in the other three, and only sockets have them.
// A record without distribution or timeline has null there. Each record ends with machine, date and commit of `origin`.
std::string to_json(const std::vector<Record>& records, const Origin& origin = {});

enum class TableStyle : uint8_t { text, markdown };

// The tables of one benchmark: ratios, then absolute figures; a column per size.
std::string to_tables(const std::vector<Record>& records, TableStyle style);

// One table of one benchmark: the median with the ratio to the limit or baseline behind it, a column per size.
std::string to_short_table(const std::vector<Record>& records, TableStyle style);

// One table: the first row is the header; the first column is text, the others are numbers (to the right) or text too.
std::string render_table(const std::vector<std::vector<std::string>>& rows, TableStyle style, bool numbers = true);

// "104 ns", "6.4 us", "4.71 GB/s", "15.2 M/s", "0.02 %".
std::string format_value(double value, const std::string& unit);
// Three significant digits: "1.24", "57.3", "412"; four decimals below 0.01.
std::string format_ratio(std::optional<double> ratio);

}  // namespace unet::bench
