// rows.h - the method of benchmarks that measure several things of one path, such as splitc. Each row has a limit of its own, and each of
// its slices stands between two slices of that limit.
#pragma once

#include <string>
#include <vector>

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

// The slices of one side of a comparison.
struct RowSlices {
  std::string path;
  Workload workload = Workload::rtt;
  uint32_t size = 0;
  uint32_t condition = 0;
};

struct RowSpec {
  std::string metric, unit;
  RowSlices own, limit;
  Relation relation = Relation::over;
  std::string baseline = {};  // the record's name for the limit; empty: the limit's path
  std::string path = {};      // the record's; empty: that of its slices
  bool difference = false;    // the value is what the slices take longer than the limit's
};

// Measures all rows in turn, in repetitions. Each row gets seconds / `rows_per_path` of the options. A row that cannot be measured is left
// out with a line on stderr. An error ends the run.
Result<std::vector<Record>> measure_rows(Session& session, const Benchmark& benchmark, const std::vector<RowSpec>& rows,
                                         double rows_per_path, const MeasureOptions& options);

}  // namespace unet::bench
