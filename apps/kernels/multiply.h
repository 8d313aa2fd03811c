// multiply.h - the product of two square blocks on one core; used by mm, and by what it is compared with, so that only communication
// differs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace unet::kernels {

// Adds a * b to c, each of side * side elements in rows. Calls `now_and_then()` after every few rows: peers may wait for this rank.
template <typename NowAndThen>
void multiply_add(double* __restrict c, const double* __restrict a, const double* __restrict b, uint32_t side,
                  const NowAndThen& now_and_then) {
  constexpr uint64_t kElementsBetween = 1 << 18;  // some 50 us of multiplying
  uint64_t multiplied = 0;
  for (size_t i = 0; i < side; ++i) {
    double* __restrict const row = c + i * side;
    for (size_t k = 0; k < side; ++k) {
      const double factor = a[i * side + k];
      const double* __restrict const other = b + k * side;
      for (size_t j = 0; j < side; ++j) row[j] += factor * other[j];
    }
    multiplied += uint64_t{side} * side;
    if (multiplied < kElementsBetween) continue;
    multiplied = 0;
    now_and_then();
  }
}

}  // namespace unet::kernels
