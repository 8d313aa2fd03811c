// figures.h - which pictures a set of points gives: curves over message sizes, distributions, bars. Knows nothing of gnuplot.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/bench/results/points.h"

namespace unet::bench {

struct Curve {
  std::string label;
  Family family = Family::other;  // decides the curve's line
  size_t colour = 0;  // the same for a path in every picture; a limit has none
  std::vector<std::pair<double, double>> values;  // x, y; sorted by x; y is NaN where the path has no figure
  std::vector<double> high;                       // p99 at the same x, or nothing
};

struct Figure {
  enum class Kind : uint8_t { over_size, distribution, bars, timeline };
  Kind kind = Kind::over_size;
  std::string name;        // of the file, without its ending
  std::string title;
  std::string note;        // machine, date and commit of its records
  std::string y_label;
  bool log_y = false;
  double y_scale = 1;      // y is shown as value * y_scale
  bool over_ranks = false;    // over_size: x is a number of ranks
  std::vector<Curve> curves;  // bars: one per bar, its value at x = 0
};

// In the order of the benchmarks in `points`. `size`: of the distributions; nothing means each benchmark's smallest.
std::vector<Figure> figures_of(const std::vector<Point>& points, std::optional<uint32_t> size);

}  // namespace unet::bench
