// multiply.h - the product of two square blocks on one core; used by mm and the programs compared with it, so that only communication
// differs.
//
// Tiles of c stay in registers. A strip of b, which is contiguous and fits the first cache, runs past them (Goto and van de Geijn, "Anatomy
// of High-Performance Matrix Multiplication", 2008, in its simplest form). The speed therefore does not depend on the addresses of blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace unet::kernels {

namespace detail {

constexpr size_t kTileRows = 4, kTileColumns = 4, kStripRows = 256;
// Every processor that we build for has a register of this size. The compiler would keep a wider vector in memory.
typedef double Pair __attribute__((vector_size(2 * sizeof(double))));
using TileRow = std::array<Pair, kTileColumns / 2>;
using Strip = std::array<TileRow, kStripRows>;

// Adds kRows rows of a, `depth` elements of each, times a strip, to a tile of c.
template <size_t kRows>
inline void multiply_tile(double* c, const double* a, const Strip& strip, size_t depth, size_t side) noexcept {
  std::array<TileRow, kRows> sums{};
  for (size_t k = 0; k < depth; ++k) {
    for (size_t row = 0; row < kRows; ++row) {
      const double factor = a[row * side + k];
      for (size_t pair = 0; pair < sums[row].size(); ++pair) sums[row][pair] += factor * strip[k][pair];
    }
  }
  for (size_t row = 0; row < kRows; ++row) {
    TileRow old;
    std::memcpy(&old, c + row * side, sizeof(old));
    for (size_t pair = 0; pair < old.size(); ++pair) old[pair] += sums[row][pair];
    std::memcpy(c + row * side, &old, sizeof(old));
  }
}

// Multiplies the columns [column, side), which are too few for a tile, in all rows.
inline void multiply_rest(double* c, const double* a, const double* b, size_t side, size_t column) noexcept {
  for (size_t i = 0; i < side; ++i) {
    for (size_t k = 0; k < side; ++k) {
      for (size_t j = column; j < side; ++j) c[i * side + j] += a[i * side + k] * b[k * side + j];
    }
  }
}

}  // namespace detail

// Adds a * b to c, each of side * side elements in rows. Calls `now_and_then()` after every few strips, because peers may wait for this
// rank.
template <typename NowAndThen>
void multiply_add(double* __restrict c, const double* __restrict a, const double* __restrict b, uint32_t side,
                  const NowAndThen& now_and_then) {
  using namespace detail;
  constexpr uint64_t kElementsBetween = 1 << 18;  // some 50 us of multiplying
  uint64_t multiplied = 0;
  Strip strip;
  const size_t in_tiles = side / kTileColumns * kTileColumns;
  for (size_t first = 0; first < side; first += kStripRows) {
    const size_t depth = std::min(kStripRows, side - first);
    for (size_t column = 0; column < in_tiles; column += kTileColumns) {
      for (size_t k = 0; k < depth; ++k) std::memcpy(&strip[k], b + (first + k) * side + column, sizeof(strip[k]));
      for (size_t row = 0; row + kTileRows <= side; row += kTileRows) {
        multiply_tile<kTileRows>(c + row * side + column, a + row * side + first, strip, depth, side);
      }
      for (size_t left = side % kTileRows; left > 0; --left) {
        multiply_tile<1>(c + (side - left) * side + column, a + (side - left) * side + first, strip, depth, side);
      }
      multiplied += uint64_t{side} * depth * kTileColumns;
      if (multiplied < kElementsBetween) continue;
      multiplied = 0;
      now_and_then();
    }
  }
  if (in_tiles < side) multiply_rest(c, a, b, side, in_tiles);
}

}  // namespace unet::kernels
