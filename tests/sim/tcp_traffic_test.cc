// tcp_traffic_test.cc - TCP under patterns of traffic over simulated fat trees: with room all arrives, and ECN keeps queues short.
#include <catch2/catch.hpp>

#include "ipstack/tcp/sim_traffic.h"

using namespace unet;
using namespace unet::tcp;
using namespace unet::tcp::sim;

namespace {

constexpr SimTree kFull{.leaf = 4, .spines = 4, .buffer = 16 << 20}, kOversubscribed{.leaf = 4, .spines = 1, .buffer = 2 << 20};
using enum TrafficPattern;

struct Outcome {
  TrafficResult result;
  Counters counters;
};

Outcome simulate(const Traffic& traffic, uint64_t seed, Ecn ecn = Ecn::off, Algorithm algorithm = Algorithm::cubic) {
  TrafficNetwork network(traffic, traffic_options(traffic, algorithm, ecn), seed);
  const TrafficResult result = run_traffic(network);
  return {result, network.counters()};
}

}  // namespace

TEST_CASE("TCP: half of what the links carry arrives, in every pattern, shared by all flows, and nothing is sent twice") {
  for (const SimTree& tree : {SimTree{}, kFull}) {
    for (const TrafficPattern pattern : {incast, permutation, all_to_all}) {
      const auto [result, counters] = simulate({.pattern = pattern, .nodes = 8, .load = 0.5, .tree = tree}, 3);
      CAPTURE(pattern, result.goodput, result.p99, result.fairness, counters.retransmitted);
      CHECK(result.goodput > 0.42);
      CHECK(result.goodput < 0.58);
      CHECK(result.p99 >= 4 * kMicrosecond);
      CHECK(result.p99 < kMillisecond);
      CHECK(result.fairness > 0.8);
      CHECK(result.fairness <= 1);
      CHECK(result.dropped == 0);
      CHECK(counters.retransmitted == 0);
      CHECK(counters.malformed + counters.out_of_window + counters.bad_ack == 0);
    }
  }
}

TEST_CASE("TCP: a small buffer that ports share loses packets, which are sent again") {
  const Traffic traffic{.pattern = incast, .nodes = 16, .tree = {.leaf = 16, .spines = 1, .buffer = 128 << 10}};
  const auto [result, counters] = simulate(traffic, 3);
  CAPTURE(result.goodput, result.p99, result.dropped, counters.timeouts, counters.recoveries);
  CHECK(result.dropped > 0);
  CHECK(counters.retransmitted > 0);
  CHECK(result.goodput > 0.1);
}

TEST_CASE("TCP: marks above a threshold keep queues short, where drops alone fill the buffer") {
  // The links between switches carry less than the load: whatever reacts late leaves a full buffer before it.
  for (const uint64_t seed : {3, 4, 5}) {
    Traffic traffic{.pattern = permutation, .nodes = 8, .load = 0.9, .tree = kOversubscribed};
    const TrafficResult drops = simulate(traffic, seed).result;
    traffic.mark_above = 128 << 10;
    const auto [marks, with] = simulate(traffic, seed, Ecn::on);
    CAPTURE(seed, drops.goodput, drops.dropped, marks.goodput, marks.dropped, with.marks, with.reductions);
    CHECK(drops.dropped > 0);
    CHECK(with.marks > 0);
    CHECK(with.reductions > 0);
    CHECK(with.reductions < with.marks);  // once per window
    CHECK(marks.dropped == 0);
    CHECK(marks.goodput > 0.8 * drops.goodput);
    const auto [shares, counted] = simulate(traffic, seed, Ecn::on, Algorithm::dctcp);
    CAPTURE(shares.goodput, shares.dropped, counted.marks, counted.reductions);
    CHECK(counted.marks > 0);
    CHECK(shares.dropped == 0);
    CHECK(2 * counted.reductions > 3 * with.reductions);  // more often than CUBIC's, but smaller
  }
}

TEST_CASE("TCP: a seed always gives the same figures") {
  const Traffic traffic{.pattern = all_to_all, .nodes = 8, .tree = kOversubscribed};
  CHECK(simulate(traffic, 5).result.p99 == simulate(traffic, 5).result.p99);
  CHECK(simulate(traffic, 5).result.p99 != simulate(traffic, 6).result.p99);
}
