// connect_test.cc - a slice's samples become steps.
#include "apps/bench/benchmarks/connect.h"

#include <catch2/catch.hpp>

#include "unet/base/time.h"

namespace unet::bench::connect_test {

TEST_CASE("connect: two samples a connection make three steps, and half a connection none") {
  const auto us = static_cast<uint64_t>(cycles_per_second() / 1e6);
  const ConnectSteps steps = ConnectSteps::from({70 * us, 80 * us, 60 * us, 90 * us, 50 * us});
  const std::vector<std::vector<double>> expected = {{70e3, 60e3}, {80e3, 90e3}, {150e3, 150e3}};
  for (size_t step = 0; step < expected.size(); ++step) {
    CAPTURE(ConnectSteps::kNames[step]);
    REQUIRE(steps.of[step].size() == 2);
    for (size_t i = 0; i < 2; ++i) CHECK(steps.of[step][i] == Approx(expected[step][i]).epsilon(0.001));
  }
  CHECK(ConnectSteps::from({}).of[0].empty());
}

TEST_CASE("connect: sends no messages, so it has no sizes") {
  const Benchmark* connect = find_benchmark("connect");
  REQUIRE(connect != nullptr);
  CHECK(sizes_of(*connect, {}) == std::vector<uint32_t>{0});
  CHECK(sizes_of(*find_benchmark("rtt"), {8}) == std::vector<uint32_t>{8});
  CHECK(sizes_of(*find_benchmark("rtt"), {}) == find_benchmark("rtt")->sizes);
}

}  // namespace unet::bench::connect_test
