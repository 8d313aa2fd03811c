// mm.cc - kernel_mm: blocked matrix multiply, as in the U-Net paper: C = A * B, by blocks that are dealt to the ranks.
//
//   unet-run -n 4 -- kernel_mm                             4 x 4 blocks of 128 x 128 doubles
//   unet-run -n 4 -- kernel_mm --blocks 16 --block 16      16 x 16 blocks of 16 x 16
//
// The owner of a block of C computes it. While it multiplies two blocks it fetches the next two (bulk_get), so communication hides behind
// computation as far as the wire allows.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "am/splitc/splitc.h"
#include "apps/kernels/kernel.h"
#include "apps/kernels/multiply.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

constexpr uint32_t kBlocksMax = 1024, kBlockMax = 4096;

struct Options {
  uint32_t blocks = 4;   // on a side of a matrix
  uint32_t block = 128;  // elements on a side of a block
};

// Small integers: every sum is exact, whatever its order, so answers are compared bit by bit.
double element(uint64_t seed, uint64_t matrix, uint64_t row, uint64_t column) noexcept {
  uint64_t bits = seed * 0x9E3779B97F4A7C15 + matrix * 0xD1B54A32D192ED03 + row * 0x8CB92BA72F3D8DD7 + column * 0xAAAAAAAAAAAAAAAB;
  bits = (bits ^ bits >> 31) * 0xBF58476D1CE4E5B9;
  bits ^= bits >> 29;
  return static_cast<double>(static_cast<int64_t>(bits % 17) - 8);
}

class Multiply {
 public:
  Multiply(const Options& options, uint64_t seed)
      : blocks_(options.blocks), side_(options.block), elements_(uint64_t{options.block} * options.block), seed_(seed),
        a_(make()), b_(make()), c_(make()) {
    for (auto& buffer : buffers_) buffer.resize(elements_);
    for (const uint64_t index : sc::my_1d(uint64_t{blocks_} * blocks_)) {
      fill(mine(a_, index), 0, index);
      fill(mine(b_, index), 1, index);
    }
  }
  ~Multiply() {
    sc::all_spread_free(c_);
    sc::all_spread_free(b_);
    sc::all_spread_free(a_);
  }
  Multiply(const Multiply&) = delete;
  Multiply& operator=(const Multiply&) = delete;

  void clear() {
    for (const uint64_t index : sc::my_1d(uint64_t{blocks_} * blocks_)) std::memset(mine(c_, index), 0, elements_ * sizeof(double));
  }

  void run(TimeSplit& time) {
    for (const uint64_t index : sc::my_1d(uint64_t{blocks_} * blocks_)) compute_block(index, time);
  }

  // Elements of this rank's blocks that differ from those that one process computes.
  uint64_t count_wrong() const {
    const uint64_t n = uint64_t{blocks_} * side_;
    std::vector<double> b(n * n);
    for (uint64_t row = 0; row < n; ++row) {
      for (uint64_t column = 0; column < n; ++column) b[row * n + column] = element(seed_, 1, row, column);
    }
    uint64_t wrong = 0;
    for (const uint64_t index : sc::my_1d(uint64_t{blocks_} * blocks_)) wrong += count_wrong_of(index, b);
    return wrong;
  }

 private:
  using Matrix = sc::Spread<double>;
  enum Buffer : size_t { kA0, kB0, kA1, kB1, kBuffers };

  Matrix make() const { return sc::all_spread_malloc<double>(uint64_t{blocks_} * blocks_, elements_); }
  double* mine(const Matrix& matrix, uint64_t index) const { return matrix.mine(index / sc::procs()).data(); }

  void fill(double* block, uint64_t matrix, uint64_t index) const {
    const uint64_t first_row = index / blocks_ * side_, first_column = index % blocks_ * side_;
    for (uint64_t i = 0; i < side_; ++i) {
      for (uint64_t j = 0; j < side_; ++j) block[i * side_ + j] = element(seed_, matrix, first_row + i, first_column + j);
    }
  }

  // A(row, k) and B(k, column) into the buffers of even or odd k.
  void fetch(uint64_t index, uint32_t k) {
    const uint64_t row = index / blocks_, column = index % blocks_;
    sc::bulk_get(buffers_[k % 2 == 0 ? kA0 : kA1].data(), a_[row * blocks_ + k], elements_);
    sc::bulk_get(buffers_[k % 2 == 0 ? kB0 : kB1].data(), b_[uint64_t{k} * blocks_ + column], elements_);
  }

  void compute_block(uint64_t index, TimeSplit& time) {
    double* const c = mine(c_, index);
    time.enter(Part::communication);
    fetch(index, 0);
    for (uint32_t k = 0; k < blocks_; ++k) {
      sc::sync();
      if (k + 1 < blocks_) fetch(index, k + 1);
      time.enter(Part::computation);
      multiply_add(c, buffers_[k % 2 == 0 ? kA0 : kA1].data(), buffers_[k % 2 == 0 ? kB0 : kB1].data(), side_, [] { sc::poll(); });
      time.enter(Part::communication);
    }
    time.enter(Part::computation);
  }

  uint64_t count_wrong_of(uint64_t index, const std::vector<double>& b) const {
    const uint64_t n = uint64_t{blocks_} * side_;
    const uint64_t first_row = index / blocks_ * side_, first_column = index % blocks_ * side_;
    const double* const c = mine(c_, index);
    std::vector<double> row(side_);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < side_; ++i) {
      std::fill(row.begin(), row.end(), 0.0);
      for (uint64_t k = 0; k < n; ++k) {
        const double factor = element(seed_, 0, first_row + i, k);
        for (uint64_t j = 0; j < side_; ++j) row[j] += factor * b[k * n + first_column + j];
      }
      for (uint64_t j = 0; j < side_; ++j) wrong += c[i * side_ + j] != row[j] ? 1 : 0;
    }
    return wrong;
  }

  const uint32_t blocks_, side_;
  const uint64_t elements_, seed_;
  const Matrix a_, b_, c_;
  std::array<std::vector<double>, kBuffers> buffers_;
};

std::string size_text(const Options& options) {
  const std::string blocks = std::to_string(options.blocks), block = std::to_string(options.block);
  return blocks + "x" + blocks + " blocks of " + block + "x" + block;
}

int program(int argc, char** argv) {
  Options options;
  CLI::App app{"kernel_mm - blocked matrix multiply in Split-C: start it by unet-run -n P -- kernel_mm"};
  app.add_option("--blocks", options.blocks, "blocks on a side of each matrix (default: 4)")->check(CLI::Range(1u, kBlocksMax));
  app.add_option("--block", options.block, "elements on a side of each block (default: 128)")->check(CLI::Range(1u, kBlockMax));
  const Parsed parsed = parse(app, argc, argv);
  if (!parsed.options) return parsed.status;

  Multiply multiply(options, parsed.options->seed);
  Measurement result{.kernel = "mm", .size = size_text(options)};
  const double n = static_cast<double>(options.blocks) * options.block;
  result.operations = 2 * n * n * n;
  result.operation = "flop";
  result.run = measure_best(*parsed.options, [&] { multiply.clear(); }, [&](TimeSplit& time) { multiply.run(time); });
  if (parsed.options->verify) result.wrong = multiply.count_wrong();
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
