// am_traffic_test.cc - patterns of traffic over simulated fat trees: what the links have room for arrives, and is shared.
#include <catch2/catch.hpp>

#include "am/sim_traffic.h"

using namespace unet;
using namespace unet::am::sim;

namespace {

constexpr SimTree kFull{.leaf = 4, .spines = 4, .buffer = 16 << 20}, kOversubscribed{.leaf = 4, .spines = 1, .buffer = 16 << 20};

TrafficResult simulate(const Traffic& traffic, uint64_t seed) {
  TrafficNetwork network(traffic, seed);
  return run_traffic(network);
}

}  // namespace

TEST_CASE("half of what the links carry arrives, in every pattern, shared by all flows") {
  for (const SimTree& tree : {SimTree{}, kFull}) {
    for (const TrafficPattern pattern : {TrafficPattern::incast, TrafficPattern::permutation, TrafficPattern::all_to_all}) {
      const TrafficResult result = simulate({.pattern = pattern, .nodes = 8, .load = 0.5, .tree = tree}, 3);
      CAPTURE(pattern, result.goodput, result.p99, result.fairness);
      CHECK(result.goodput > 0.42);
      CHECK(result.goodput < 0.58);
      CHECK(result.p99 >= 4 * kMicrosecond);
      const bool may_meet = pattern == TrafficPattern::permutation && tree.leaf != 0;  // two flows on one link between switches (ECMP)
      CHECK(result.p99 < (may_meet ? kMillisecond : 100 * kMicrosecond));
      CHECK(result.fairness > 0.8);
      CHECK(result.fairness <= 1);
    }
  }
}

TEST_CASE("four nodes share a link between switches: it bounds an all-to-all exchange") {
  // Of seven receivers four are at the other leaf, and their share of a node's link is a quarter.
  const TrafficResult result = simulate({.pattern = TrafficPattern::all_to_all, .nodes = 8, .tree = kOversubscribed}, 3);
  CAPTURE(result.goodput, result.p99, result.fairness, result.dropped);
  CHECK(result.goodput < 0.9 * 3 / 7 + 0.26);
  CHECK(result.goodput > 0.5);
  CHECK(result.p99 > simulate({.pattern = TrafficPattern::all_to_all, .nodes = 8, .tree = kFull}, 3).p99);
}

TEST_CASE("a request that waits at the end counts with its age: beyond what links carry, p99 grows with the time simulated") {
  const auto p99 = [](Nanoseconds time) {
    return simulate({.pattern = TrafficPattern::all_to_all, .nodes = 8, .tree = kOversubscribed, .warm_up = 0, .time = time}, 3).p99;
  };
  CHECK(2 * p99(4 * kMillisecond) > 3 * p99(2 * kMillisecond));
}

TEST_CASE("a small buffer that ports share loses packets, and the rest is not lost with them") {
  const Traffic traffic{.pattern = TrafficPattern::incast, .nodes = 16, .tree = {.leaf = 16, .spines = 1, .buffer = 32 << 10}};
  const TrafficResult result = simulate(traffic, 3);
  CAPTURE(result.goodput, result.dropped);
  CHECK(result.dropped > 0);
  CHECK(result.goodput > 0.35);
}

TEST_CASE("a seed always gives the same figures") {
  const Traffic traffic{.pattern = TrafficPattern::permutation, .nodes = 8, .tree = kOversubscribed};
  CHECK(simulate(traffic, 5).p99 == simulate(traffic, 5).p99);
  CHECK(simulate(traffic, 5).p99 != simulate(traffic, 6).p99);
}
