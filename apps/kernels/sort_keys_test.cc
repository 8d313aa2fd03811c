// sort_keys_test.cc - the parts of the sorts: sorting on one core, splitters, and whether the check finds a fault.
#include "apps/kernels/sort_keys.h"

#include <catch2/catch.hpp>

#include "apps/kernels/radix.h"
#include "apps/kernels/splitters.h"

namespace unet::kernels::sort_keys_test {
namespace {

std::vector<uint32_t> input(uint64_t count) {
  std::vector<uint32_t> keys(count);
  fill_keys(keys, 0, 7);
  return keys;
}

TEST_CASE("a radix sort on one core sorts any number of keys") {
  for (const uint64_t count : {0, 1, 2, 3, 1000, 70000}) {
    std::vector<uint32_t> keys = input(count), other(count), expected = keys;
    std::sort(expected.begin(), expected.end());
    const std::span<uint32_t> sorted = radix_sort(keys, other, [] {});
    REQUIRE(std::equal(sorted.begin(), sorted.end(), expected.begin(), expected.end()));
  }
}

TEST_CASE("a radix sort lets others have their turn") {
  std::vector<uint32_t> keys = input(200000), other(keys.size());
  int turns = 0;
  radix_sort(keys, other, [&] { ++turns; });
  REQUIRE(turns >= 4);
}

TEST_CASE("a key is of the part whose splitters it lies between") {
  for (const uint32_t parts : {1u, 2u, 3u, 8u}) {
    std::vector<uint32_t> samples = input(256);
    Splitters splitters;
    splitters.choose(samples, parts);  // sorts them
    const auto expected = [&](uint32_t key) {
      uint32_t part = 0;
      for (uint32_t next = 1; next < parts; ++next) part += key >= samples[next * samples.size() / parts] ? 1 : 0;
      return part;
    };
    for (const uint32_t sample : samples) {
      for (const uint32_t key : {sample - 1, sample, sample + 1}) REQUIRE(splitters.part_of(key) == expected(key));
    }
    REQUIRE(splitters.part_of(0) == expected(0));
    REQUIRE(splitters.part_of(~0u) == expected(~0u));
  }
}

TEST_CASE("equal samples make parts without keys") {
  std::vector<uint32_t> samples(64, 5u);
  Splitters splitters;
  splitters.choose(samples, 4);
  REQUIRE(splitters.part_of(4) == 0);
  REQUIRE(splitters.part_of(5) == 3);
}

TEST_CASE("a key out of place, and one too many, are seen") {
  std::vector<uint32_t> keys = input(1000);
  std::sort(keys.begin(), keys.end());
  SortedKeys sorted(1000, 7);
  REQUIRE(sorted.count_wrong(keys, 0) == 0);
  REQUIRE(sorted.count_wrong(std::span(keys).subspan(100, 50), 100) == 0);
  std::swap(keys[3], keys[4]);
  REQUIRE(sorted.count_wrong(keys, 0) == 2);
  REQUIRE(sorted.count_wrong(std::span(keys).first(1), 1000) == 1);
}

}  // namespace
}  // namespace unet::kernels::sort_keys_test
