// points.h - the records of JSON files as a picture needs them; a record is checked here, and never looked at as JSON again.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "unet/base/result.h"

namespace unet::bench {

// A row of a file: one path at one size of one benchmark.
struct Point {
  std::string bench, path, metric, unit;
  std::string label;                 // the path's name in a picture
  size_t colour = 0;                 // of the path, in all pictures
  std::string baseline;
  uint32_t size = 0;                 // bytes
  double p50 = 0, p99 = 0;           // in `unit`; NaN for a record without figures, which a picture marks
  std::vector<double> distribution;  // values at kDistribution, NaN where there were too few samples; or nothing
  std::string origin;                // machine, date and commit, in one line
  std::vector<double> timeline;      // kTimelineBins values, or nothing
};

// Those of one text of JSON, which `source` names in errors.
Result<std::vector<Point>> parse_points(const std::string& json, const std::string& source);

// Those of all files. A path that several files measured gets the file's name behind its own.
Result<std::vector<Point>> read_points(const std::vector<std::string>& files);

}  // namespace unet::bench
