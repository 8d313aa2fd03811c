// cores_test.cc - lists of cores, and the choice of two.
#include "apps/bench/machine/cores.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace unet::bench::cores_test {

TEST_CASE("cores: lists as /sys writes them") {
  CHECK(parse_cpu_list("0-3,8") == std::vector<int>{0, 1, 2, 3, 8});
  CHECK(parse_cpu_list("5") == std::vector<int>{5});
  for (const char* text : {"", "a", "3-1", "1-", "-1", "1,,2", "1-2-3"}) {
    CAPTURE(text);
    CHECK(parse_cpu_list(text).empty());
  }
}

TEST_CASE("cores: two different allowed ones where there are two") {
  const auto allowed = allowed_cores();
  REQUIRE(allowed);
  const auto pair = choose_cores();
  REQUIRE(pair);
  CHECK(std::count(allowed->begin(), allowed->end(), pair->a) == 1);
  CHECK(std::count(allowed->begin(), allowed->end(), pair->b) == 1);
  CHECK(pair->alone() == (allowed->size() == 1));
}

TEST_CASE("cores: a third one is neither of the two, and there is none of two") {
  const auto allowed = allowed_cores();
  const auto pair = choose_cores();
  REQUIRE((allowed && pair));
  const auto third = third_core(*pair);
  CHECK(third.has_value() == (allowed->size() > 2));
  if (!third) return;
  CHECK((*third != pair->a && *third != pair->b));
  CHECK(std::find(allowed->begin(), allowed->end(), *third) != allowed->end());
}

}  // namespace unet::bench::cores_test
