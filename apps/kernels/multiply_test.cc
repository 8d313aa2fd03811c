// multiply_test.cc - compares the product of two blocks of any side with the definition.
#include "apps/kernels/multiply.h"

#include <vector>

#include <catch2/catch.hpp>

namespace unet::kernels::multiply_test {

TEST_CASE("blocks of any side are multiplied", "[kernels]") {
  for (const uint32_t side : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 16u, 31u, 128u, 257u}) {
    const size_t elements = size_t{side} * side;
    std::vector<double> a(elements), b(elements), c(elements), expected(elements);
    for (size_t i = 0; i < elements; ++i) {
      a[i] = static_cast<double>(i * 7 % 13) - 6;
      b[i] = static_cast<double>(i * 5 % 11) - 5;
      c[i] = expected[i] = static_cast<double>(i % 3);
    }
    for (size_t i = 0; i < side; ++i) {
      for (size_t k = 0; k < side; ++k) {
        for (size_t j = 0; j < side; ++j) expected[i * side + j] += a[i * side + k] * b[k * side + j];
      }
    }
    uint32_t pauses = 0;
    unet::kernels::multiply_add(c.data(), a.data(), b.data(), side, [&] { ++pauses; });
    CAPTURE(side);
    CHECK(c == expected);  // with integers the order of additions does not matter
    CHECK((pauses > 0) == (side >= 128));
  }
}

}  // namespace unet::kernels::multiply_test
