// stats_test.cc - percentiles by nearest rank, dropped slices, and ratios of repetitions.
#include "apps/bench/results/stats.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace unet::bench::stats_test {

namespace {

std::vector<double> one_to(int n) {
  std::vector<double> values;
  for (int i = n; i >= 1; --i) values.push_back(i);
  return values;
}

Repetition repetition_of(std::vector<SliceValue> slices) {
  Repetition repetition;
  for (const SliceValue& slice : slices) repetition.add(slice);
  return repetition;
}

Repetition three_of(SliceValue slice) { return repetition_of({slice, slice, slice}); }

}  // namespace

TEST_CASE("stats: percentiles are values that occurred") {
  std::vector<double> values = one_to(1000);
  CHECK(percentile(values, 0) == 1);
  CHECK(percentile(values, 0.5) == 500);
  CHECK(percentile(values, 0.99) == 990);
  CHECK(percentile(values, 0.999) == 999);
  CHECK(percentile(values, 1) == 1000);
  std::vector<double> single{7};
  CHECK(percentile(single, 0.001) == 7);
  CHECK(percentile(single, 0.999) == 7);
  CHECK(median({3, 1, 2}) == 2);
}

TEST_CASE("stats: the bad tail of latencies is high, that of rates is low") {
  const Summary latency = summarize(one_to(1000));
  CHECK(latency.p50 == 500);
  CHECK(latency.p99 == 990);
  CHECK(latency.p999 == 999);
  CHECK(latency.mean == 500.5);
  CHECK(latency.samples == 1000);
  const Summary rate = summarize_rates(one_to(1000));
  CHECK(rate.p50 == 500);
  CHECK(rate.p99 == 10);
  CHECK(rate.p999 == 1);
  CHECK(summarize({}).samples == 0);
}

TEST_CASE("stats: a percentile p needs 1 / (1 - p) samples") {
  CHECK_FALSE(summarize(one_to(99)).p99);
  CHECK(summarize(one_to(100)).p99 == 99);
  CHECK_FALSE(summarize(one_to(999)).p999);
  CHECK_FALSE(summarize_rates(one_to(99)).p99);
  CHECK(summarize_rates(one_to(100)).p99 == 1);
  CHECK_FALSE(summarize({7}).p99);
  const std::vector<double> few = distribution(one_to(10));  // enough for 10 %, 25 %, 50 % and 90 %
  REQUIRE(few.size() == kDistribution.size());
  CHECK(std::isnan(few[0]));
  CHECK(few[1] == 1);
  CHECK(few[4] == 9);
  for (size_t i = 5; i < few.size(); ++i) CHECK(std::isnan(few[i]));
  CHECK_FALSE(known_median({}));
  CHECK(known_median({std::nullopt, 3, 1, 2, std::nullopt}) == 2);
}

TEST_CASE("stats: a slice counts only if its limit is usual for the run") {
  // The limit stood still around the last slice, too, but at fifteen times its speed in the rest of the run.
  std::vector<Repetition> path = {repetition_of({{220, 1000, 1000}, {221, 1010, 1000}}), repetition_of({{222, 990, 1000}, {223, 66, 66}})};
  std::vector<int> parallel = {0, 1, 2, 3};
  const std::vector<Repetition> limit = {three_of({1000, 1000, 1000}), three_of({1000, 600, 700})};
  CHECK(usual_limit(limit) == Approx(650).margin(350));
  CHECK(usual_limit({}) == 0);
  drop_unusual(path, 1000, parallel);
  CHECK(parallel == std::vector<int>{0, 1, 2});
  CHECK(path[1].values == std::vector<double>{222});
  CHECK(path[1].dropped == 1);
  CHECK(ratio_to_limit(path, Relation::over).value() == Approx(0.22).margin(0.01));
}

TEST_CASE("stats: fewer slices than a figure needs give no ratio, to a limit or a baseline") {
  const std::vector<Repetition> one = {repetition_of({{336, 100, 100}})}, two = {one[0], one[0]}, three = {three_of({336, 100, 100})};
  CHECK_FALSE(has_figure({}));
  CHECK_FALSE(has_figure(two));
  CHECK(has_figure(three));
  CHECK_FALSE(ratio_to_limit(two, Relation::over));
  CHECK_FALSE(ratio_to_baseline(one, three));
  CHECK_FALSE(ratio_to_baseline(three, one));
  CHECK(ratio_to_baseline(three, three));
}

TEST_CASE("stats: a slice counts only when the limit around it stood still") {
  CHECK(limit_held({1, 100, 100}));
  CHECK(limit_held({1, 100, 125}));
  CHECK(limit_held({1, 125, 100}));
  CHECK_FALSE(limit_held({1, 100, 126}));
  CHECK_FALSE(limit_held({1, 126, 100}));
  CHECK_FALSE(limit_held({1, 0, 100}));
  CHECK_FALSE(limit_held({1, 100, 0}));
  CHECK(limit_held({1, 100, 150}, 0.5));
}

TEST_CASE("stats: dropped slices are counted and change nothing else") {
  Repetition repetition;
  CHECK(repetition.add({200, 100, 110}));
  CHECK_FALSE(repetition.add({9999, 100, 300}));
  CHECK(repetition.add({210, 110, 100}));
  CHECK(repetition.add({220, 100, 100}));
  CHECK_FALSE(repetition.add({.value = 9999, .limit_before = 100, .limit_after = 100, .disturbed = true}));
  CHECK(repetition.dropped == 1);
  CHECK(repetition.disturbed == 1);
  CHECK(repetition.values.size() == 3);
  CHECK(repetition.p50() == 210);
  CHECK(repetition.limit() == 105);
}

TEST_CASE("stats: the ratio is the median over repetitions, each against its own limit") {
  // The machine is three times slower in the second repetition: the ratio is not.
  const std::vector<Repetition> repetitions = {three_of({130, 100, 100}), three_of({390, 300, 300}), three_of({200, 100, 100})};
  CHECK(ratio_to_limit(repetitions, Relation::over).value() == Approx(1.3));
  // 5 messages per microsecond at 200 ns a round trip: one message per round trip.
  CHECK(ratio_to_limit({three_of({5e6, 200, 200})}, Relation::product).value() == Approx(1.0));
}

TEST_CASE("stats: repetitions that kept nothing do not count") {
  const Repetition empty = repetition_of({{130, 100, 200}});
  CHECK(empty.empty());
  CHECK_FALSE(ratio_to_limit({empty, empty}, Relation::over));
  CHECK(median_of({empty, empty}, &Repetition::p50) == 0);
  CHECK(median_of({}, &Repetition::limit) == 0);
  const std::vector<Repetition> some = {empty, repetition_of({{150, 100, 100}}), repetition_of({{190, 120, 120}}),
                                        repetition_of({{170, 140, 140}})};
  CHECK(median_of(some, &Repetition::p50) == 170);
  CHECK(median_of(some, &Repetition::limit) == 120);
  CHECK(ratio_to_limit({empty, three_of({150, 100, 100})}, Relation::over).value() == Approx(1.5));
}

TEST_CASE("stats: a baseline is another path of the same repetition") {
  const std::vector<Repetition> ours = {three_of({110, 100, 100}), three_of({440, 300, 300}), {}};
  const std::vector<Repetition> raw = {three_of({100, 100, 100}), three_of({400, 300, 300}), three_of({1, 100, 100})};
  CHECK(ratio_to_baseline(ours, raw).value() == Approx(1.1));
  CHECK_FALSE(ratio_to_baseline({{}}, raw));
}

}  // namespace unet::bench::stats_test
