// points.h - the records of JSON files, for pictures and comparisons; a record is checked here, and never looked at as JSON again.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench/results/report.h"
#include "unet/base/result.h"

namespace unet::bench {

// The kind of a path, by its name. `other`: parallel programs by MPI.
enum class Family : uint8_t { ours, limit, raw, kernel, other };

// A baseline that is no path, such as "one rank", is ours: it comes from the same path under other conditions.
Family family_of(const std::string& path);

constexpr int kReportFormat = 1;  // of the JSON of `unet-bench report`: report/results.py

// A row of a file: one path at one size of one benchmark.
struct Point {
  std::string bench, path, metric, unit;
  std::string label;                 // the path, with the name of its file where several files measured it
  std::string baseline;
  uint32_t size = 0;                 // bytes
  double p50 = 0, p99 = 0;           // in `unit`; NaN for a record without figures; 0 is a figure
  double ratio = 0;                  // to `baseline`; NaN without one
  std::vector<double> distribution;  // values at kDistribution, NaN where there were too few samples; or nothing
  Origin origin;
  std::vector<double> timeline;      // kTimelineBins values, or nothing
};

// The records of one text of JSON, which `source` names in errors.
Result<std::vector<Point>> parse_points(const std::string& json, const std::string& source);

// The runs of one file: of a report its rounds, else the records of the file; "-" is standard input.
Result<std::vector<std::vector<Point>>> read_file_runs(const std::string& file);

// The records of one file; "-" is standard input.
Result<std::vector<Point>> read_file_points(const std::string& file);

// The records of all files; at least one has a figure above 0, as a picture needs.
Result<std::vector<Point>> read_points(const std::vector<std::string>& files);

}  // namespace unet::bench
