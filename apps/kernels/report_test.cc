// report_test.cc - the best of several runs counts, and every answer is verified.
#include "apps/kernels/report.h"

#include <catch2/catch.hpp>
#include <vector>

namespace unet::kernels::report_test {
namespace {

// Simulates runs with given times and numbers of wrong elements.
struct Runs {
  std::vector<double> seconds;
  std::vector<uint64_t> wrong;
  size_t begun = 0;

  Measurement measure(bool verify) {
    Measurement result;
    const Work work{.begin = [&] { ++begun; }, .run = [](TimeSplit&) {}, .count_wrong = [&] { return wrong.at(begun - 1); }};
    const auto one = [&] {
      Run run;
      run.seconds = seconds.at(begun - 1);
      run.messages = begun;
      return run;
    };
    const CommonOptions options{.repeat = static_cast<uint32_t>(seconds.size()), .verify = verify, .json = {}};
    measure_best(options, work, one, [](double own) { return -own; }, result);
    return result;
  }
};

TEST_CASE("the best run is that of the least seconds that all have agreed on") {
  Runs runs{{2, 3, 1}, {0, 0, 0}};
  const Measurement result = runs.measure(true);
  REQUIRE(runs.begun == 3);
  REQUIRE(result.run.seconds == 3);
  REQUIRE(result.run.messages == 2);
  REQUIRE(result.wrong == 0);
}

TEST_CASE("a wrong answer is seen, whichever run gave it") {
  REQUIRE(Runs{{1, 2, 3}, {5, 0, 0}}.measure(true).wrong == 5);
  REQUIRE(Runs{{1, 2, 3}, {0, 4, 0}}.measure(true).wrong == 4);
  REQUIRE(Runs{{1, 2, 3}, {1, 2, 3}}.measure(true).wrong == 6);
}

TEST_CASE("what shall not be verified is not") { REQUIRE_FALSE(Runs{{1, 2}, {1, 1}}.measure(false).wrong.has_value()); }

}  // namespace
}  // namespace unet::kernels::report_test
