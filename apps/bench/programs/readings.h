// readings.h - what programs said when they were measured, by figure, path and repetition, and the records of it; programs.cc and mpi.cc
// fill it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

struct ProgramFigure {
  std::string metric, unit;
  double value = 0;
  uint32_t size = 0;
};

class Readings {
 public:
  explicit Readings(const Benchmark& benchmark) : benchmark_(benchmark) {}

  bool empty() const { return metrics_.empty(); }
  void add(const ProgramFigure& figure, const std::string& path, uint32_t repetition);
  // Says once on stderr why something was not measured.
  void leave_out(const std::string& what, std::string why);
  // For each figure of each path: a record for each baseline of that path. Ratio: over the baseline in the same repetition.
  std::vector<Record> records(const std::vector<PathInfo>& paths, const MeasureOptions& options) const;

 private:
  using Values = std::map<uint32_t, double>;  // by repetition
  struct Metric {
    ProgramFigure figure;  // without a value
    std::map<std::string, Values> values;  // by path
  };

  Metric& metric(const ProgramFigure& figure);

  const Benchmark& benchmark_;
  std::vector<Metric> metrics_;
  std::set<std::string> left_out_;
};

}  // namespace unet::bench
