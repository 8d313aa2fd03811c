// npb_test.cc - the random numbers and the matrix of the NAS Parallel Benchmarks.
#include "apps/kernels/npb.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "apps/kernels/npb_matrix.h"

namespace unet::kernels::npb_test {
namespace {

TEST_CASE("the first number is the seed times 5^13") {
  NpbRandom random;
  REQUIRE(random.next_bits() == uint64_t{314159265} * 1220703125 % (uint64_t{1} << 46));
}

TEST_CASE("skipping is the same as drawing") {
  NpbRandom one_by_one;
  for (uint64_t count = 0; count < 300; ++count) {
    NpbRandom skipped;
    skipped.skip(count);
    NpbRandom drawn = one_by_one;
    REQUIRE(skipped.next_bits() == drawn.next_bits());
    one_by_one.next_bits();
  }
}

constexpr NpbCgClass kSmall{100, 5, 1, 10, 0};

TEST_CASE("the matrix is symmetric") {
  const SparseRows matrix = make_npb_matrix(kSmall, 0, kSmall.rows);
  REQUIRE(matrix.rows() == kSmall.rows);
  std::vector<double> dense(size_t{kSmall.rows} * kSmall.rows);
  for (uint32_t row = 0; row < kSmall.rows; ++row) {
    for (uint64_t i = matrix.starts[row]; i < matrix.starts[row + 1]; ++i) dense[row * kSmall.rows + matrix.columns[i]] = matrix.values[i];
  }
  for (uint32_t i = 0; i < kSmall.rows; ++i) {
    for (uint32_t j = 0; j < i; ++j) {
      REQUIRE(std::fabs(dense[i * kSmall.rows + j] - dense[j * kSmall.rows + i]) < 1e-12);
    }
  }
}

TEST_CASE("some rows are those of the whole matrix") {
  const SparseRows all = make_npb_matrix(kSmall, 0, kSmall.rows), some = make_npb_matrix(kSmall, 30, 20);
  REQUIRE(some.rows() == 20);
  const uint64_t begin = all.starts[30];
  REQUIRE(some.values.size() == all.starts[50] - begin);
  for (uint64_t i = 0; i < some.values.size(); ++i) {
    REQUIRE(some.values[i] == all.values[begin + i]);
    REQUIRE(some.columns[i] == all.columns[begin + i]);
  }
}

}  // namespace
}  // namespace unet::kernels::npb_test
