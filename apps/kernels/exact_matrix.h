// exact_matrix.h - matrices of small integers; used by the matrix multiplications. Their product is exact in any order of additions, so
// answers are compared bit by bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace unet::kernels {

enum class Factor : uint64_t { a, b };

constexpr double matrix_element(uint64_t seed, Factor which, uint64_t row, uint64_t column) noexcept {
  uint64_t bits = seed * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(which) * 0xD1B54A32D192ED03 + row * 0x8CB92BA72F3D8DD7 +
                  column * 0xAAAAAAAAAAAAAAAB;
  bits = (bits ^ bits >> 31) * 0xBF58476D1CE4E5B9;
  bits ^= bits >> 29;
  return static_cast<double>(static_cast<int64_t>(bits % 17) - 8);
}

// A square part of a matrix: the position of its upper left element, and its side.
struct BlockPlace {
  uint64_t row, column, side;
};

inline void fill_block(double* block, uint64_t seed, Factor which, const BlockPlace& place) noexcept {
  for (uint64_t i = 0; i < place.side; ++i) {
    for (uint64_t j = 0; j < place.side; ++j) block[i * place.side + j] = matrix_element(seed, which, place.row + i, place.column + j);
  }
}

// The product of the two matrices of n * n elements as one process computes it, part by part.
class SerialProduct {
 public:
  SerialProduct(uint64_t n, uint64_t seed) : n_(n), seed_(seed), b_(n * n) { fill_block(b_.data(), seed, Factor::b, {0, 0, n}); }

  // Counts the elements of `block` that differ from the product.
  uint64_t count_wrong(const double* block, const BlockPlace& place) const {
    std::vector<double> row(place.side);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < place.side; ++i) {
      std::fill(row.begin(), row.end(), 0.0);
      for (uint64_t k = 0; k < n_; ++k) {
        const double factor = matrix_element(seed_, Factor::a, place.row + i, k);
        for (uint64_t j = 0; j < place.side; ++j) row[j] += factor * b_[k * n_ + place.column + j];
      }
      for (uint64_t j = 0; j < place.side; ++j) wrong += block[i * place.side + j] != row[j] ? 1 : 0;
    }
    return wrong;
  }

 private:
  uint64_t n_, seed_;
  std::vector<double> b_;
};

}  // namespace unet::kernels
