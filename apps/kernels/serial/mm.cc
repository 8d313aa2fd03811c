// mm.cc - serial_mm: matrix multiply by one process, to compare with kernel_mm and mpi_mm.
//
//   serial_mm                             512 x 512 doubles, as 4 x 4 blocks of 128 x 128
//   serial_mm --blocks 16 --block 16      256 x 256
//
// No other process needs a part of a matrix, so it chooses the block size that is fastest.
#include <algorithm>
#include <string>
#include <vector>

#include "apps/kernels/exact_matrix.h"
#include "apps/kernels/multiply.h"
#include "apps/kernels/serial/serial_kernel.h"

namespace unet::kernels {
namespace {

constexpr uint32_t kBlocksMax = 1024, kBlockMax = 4096;

struct Options {
  uint32_t blocks = 4;   // blocks per side of a matrix, in the parallel program
  uint32_t block = 128;  // elements per side of such a block
};

// The product of two blocks is fastest if a block has as many rows as a strip (multiply.h).
uint64_t best_block(uint64_t n) noexcept {
  constexpr uint64_t kBest = 256;
  uint64_t block = n;
  while (block > kBest && block % 2 == 0) block /= 2;
  return block;
}

class Multiply {
 public:
  Multiply(uint64_t n, uint64_t seed)
      : n_(n), side_(best_block(n)), blocks_(n / side_), seed_(seed), a_(make(Factor::a)), b_(make(Factor::b)), c_(n * n) {}

  void clear() { std::fill(c_.begin(), c_.end(), 0.0); }

  void run() {
    for (uint64_t row = 0; row < blocks_; ++row) {
      for (uint64_t column = 0; column < blocks_; ++column) {
        for (uint64_t k = 0; k < blocks_; ++k) {
          multiply_add(c_.data() + at(row, column), a_.data() + at(row, k), b_.data() + at(k, column), static_cast<uint32_t>(side_), [] {});
        }
      }
    }
  }

  uint64_t count_wrong() const {
    const SerialProduct product(n_, seed_);
    uint64_t wrong = 0;
    for (uint64_t row = 0; row < blocks_; ++row) {
      for (uint64_t column = 0; column < blocks_; ++column) wrong += product.count_wrong(c_.data() + at(row, column), place(row, column));
    }
    return wrong;
  }

 private:
  uint64_t at(uint64_t row, uint64_t column) const noexcept { return (row * blocks_ + column) * side_ * side_; }
  BlockPlace place(uint64_t row, uint64_t column) const noexcept { return {row * side_, column * side_, side_}; }

  std::vector<double> make(Factor which) const {
    std::vector<double> matrix(n_ * n_);
    for (uint64_t row = 0; row < blocks_; ++row) {
      for (uint64_t column = 0; column < blocks_; ++column) fill_block(matrix.data() + at(row, column), seed_, which, place(row, column));
    }
    return matrix;
  }

  const uint64_t n_, side_, blocks_;   // elements per side of a matrix, and of a block; blocks per side of a matrix
  const uint64_t seed_;
  const std::vector<double> a_, b_;    // block by block
  std::vector<double> c_;
};

int program(int argc, char** argv) {
  Options options;
  CommandLine line("serial_mm - matrix multiply by one process, C = A * B",
                   "Compare kernel_mm and mpi_mm with it. The options are theirs and make the same matrices; the blocks in which it\n"
                   "multiplies them are its own.");
  line.number("--blocks", options.blocks, 1, kBlocksMax, "blocks on a side of each matrix");
  line.number("--block", options.block, 1, kBlockMax, "elements on a side of each block");
  const Parsed parsed = line.parse(argc, argv, true);
  if (!parsed.options) return parsed.status;

  const uint64_t n = uint64_t{options.blocks} * options.block;
  Multiply multiply(n, parsed.options->seed);
  const std::string blocks = std::to_string(options.blocks), block = std::to_string(options.block);
  Measurement result{.kernel = "mm", .size = blocks + "x" + blocks + " blocks of " + block + "x" + block};
  result.operations = 2 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  result.operation = "flop";
  result.reference = "the definition";
  const Work work{.begin = [&] { multiply.clear(); },
                  .run = [&](TimeSplit&) { multiply.run(); },
                  .count_wrong = [&] { return multiply.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::kernels::program(argc, argv); }
