// fourier_test.cc - compares the fast transform with the sum that defines it.
#include "apps/kernels/fourier.h"

#include <catch2/catch.hpp>

#include "apps/kernels/random.h"

namespace unet::kernels::fourier_test {
namespace {

TEST_CASE("the fast transform is the transform") {
  for (uint64_t length = 1; length <= 256; length *= 2) {
    std::vector<Complex> input(length);
    for (uint64_t i = 0; i < length; ++i) input[i] = {random_unit(3, 2 * i), random_unit(3, 2 * i + 1)};
    std::vector<Complex> output = input;
    Fourier(length).transform(output);
    for (uint64_t k = 0; k < length; ++k) {
      Complex sum;
      for (uint64_t i = 0; i < length; ++i) sum = sum + input[i] * root_of_unity(k * i, length);
      REQUIRE(std::fabs(sum.re - output[k].re) < 1e-10);
      REQUIRE(std::fabs(sum.im - output[k].im) < 1e-10);
    }
  }
}

}  // namespace
}  // namespace unet::kernels::fourier_test
