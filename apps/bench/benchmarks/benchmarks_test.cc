// benchmarks_test.cc - the list of benchmarks beside what other parts know of their units.
#include "apps/bench/benchmarks/benchmarks.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "apps/bench/results/compare.h"

namespace unet::bench {

TEST_CASE("the unit of every benchmark says whether large values are better", "[benchmarks]") {
  const auto run_of = [](const Benchmark& benchmark, double p50) {
    Point point;
    point.bench = benchmark.name;
    point.path = "local";
    point.metric = benchmark.metric;
    point.unit = benchmark.unit;
    point.p50 = p50;
    point.ratio = NAN;
    return std::vector<Point>{point};
  };
  for (const Benchmark& benchmark : all_benchmarks()) {
    if (benchmark.unit.find(' ') != std::string::npos) continue;  // "as each figure says"
    INFO(benchmark.name << ": " << benchmark.unit);
    const Runs before(kFilesMin, run_of(benchmark, 100)), after(kFilesMin, run_of(benchmark, 110));
    const Comparison comparison = compare(before, after, 0.01);
    const bool is_rate = benchmark.unit.find("/s") != std::string::npos;
    CHECK(count_of(comparison, is_rate ? Verdict::faster : Verdict::slower) == 1);
  }
}

}  // namespace unet::bench
