// partition_test.cc - every partition of a small number of things among a small number of ranks.
#include "apps/kernels/partition.h"

#include <catch2/catch.hpp>

namespace unet::kernels::partition_test {
namespace {

TEST_CASE("runs follow one another, differ by one at most, and have all things") {
  for (uint64_t count = 0; count <= 40; ++count) {
    for (uint32_t parts = 1; parts <= 12; ++parts) {
      const Partition partition(count, parts);
      REQUIRE(partition.begin(0) == 0);
      REQUIRE(partition.end(parts - 1) == count);
      for (uint32_t part = 0; part < parts; ++part) {
        REQUIRE(partition.size(part) <= partition.size_max());
        REQUIRE(partition.size(part) + 1 >= partition.size_max());
      }
    }
  }
}

TEST_CASE("each thing is in its owner's run") {
  for (uint64_t count = 1; count <= 40; ++count) {
    for (uint32_t parts = 1; parts <= 12; ++parts) {
      const Partition partition(count, parts);
      for (uint64_t i = 0; i < count; ++i) {
        const uint32_t owner = partition.owner(i);
        REQUIRE(owner < parts);
        REQUIRE(i >= partition.begin(owner));
        REQUIRE(i < partition.end(owner));
      }
    }
  }
}

}  // namespace
}  // namespace unet::kernels::partition_test
