// mm.cc - kernel_mm: blocked matrix multiply, C = A * B, as in the U-Net paper, with blocks dealt to the ranks.
//
//   unet-run -n 4 -- kernel_mm                             4 x 4 blocks of 128 x 128 doubles
//   unet-run -n 4 -- kernel_mm --blocks 16 --block 16      16 x 16 blocks of 16 x 16
//
// The owner of a block of C computes it. While it multiplies two blocks it fetches the next two (bulk_get), so computation hides
// communication as far as the wire allows. It uses its own blocks in place. It fetches a row of A's blocks once for all blocks of C in that
// row.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "am/splitc/splitc.h"
#include "apps/kernels/exact_matrix.h"
#include "apps/kernels/kernel.h"
#include "apps/kernels/multiply.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

constexpr uint32_t kBlocksMax = 1024, kBlockMax = 4096;

struct Options {
  uint32_t blocks = 4;   // per side of a matrix
  uint32_t block = 128;  // elements per side of a block
};

class Multiply {
 public:
  Multiply(const Options& options, uint64_t seed)
      : blocks_(options.blocks), side_(options.block), elements_(uint64_t{options.block} * options.block), seed_(seed),
        a_(make()), b_(make()), c_(make()), a_buffer_(blocks_ * elements_), a_row_(blocks_) {
    for (auto& buffer : b_buffers_) buffer.resize(elements_);
    for (const uint64_t index : sc::my_1d(uint64_t{blocks_} * blocks_)) {
      fill_block(mine(a_, index), seed, Factor::a, place(index));
      fill_block(mine(b_, index), seed, Factor::b, place(index));
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
    for (FactorBlock& block : a_row_) block.row = kNone;
    for (const uint64_t index : sc::my_1d(uint64_t{blocks_} * blocks_)) compute_block(index, time);
  }

  // Counts the elements of this rank's blocks that differ from the serial product.
  uint64_t count_wrong() const {
    const SerialProduct serial(uint64_t{blocks_} * side_, seed_);
    uint64_t wrong = 0;
    for (const uint64_t index : sc::my_1d(uint64_t{blocks_} * blocks_)) wrong += serial.count_wrong(mine(c_, index), place(index));
    return wrong;
  }

 private:
  using Matrix = sc::Spread<double>;
  static constexpr uint64_t kNone = ~uint64_t{0};
  // A block of A that is here, or being fetched.
  struct FactorBlock {
    uint64_t row = kNone;
    const double* at = nullptr;
  };

  Matrix make() const { return sc::all_spread_malloc<double>(uint64_t{blocks_} * blocks_, elements_); }
  double* mine(const Matrix& matrix, uint64_t index) const { return matrix.mine(index / sc::procs()).data(); }

  BlockPlace place(uint64_t index) const noexcept { return {index / blocks_ * side_, index % blocks_ * side_, side_}; }

  // Returns where block `index` will be after the next sync(): in place if this rank owns it, else in `buffer`.
  const double* fetch(const Matrix& matrix, uint64_t index, double* buffer) const {
    if (index % sc::procs() == sc::my_proc()) return mine(matrix, index);
    sc::bulk_get(buffer, matrix[index], elements_);
    return buffer;
  }

  // Fetches A(row, k), unless it is here, and B(k, column), into one of two buffers: for an even and an odd k.
  void fetch_factors(uint64_t index, uint32_t k) {
    const uint64_t row = index / blocks_, column = index % blocks_;
    if (a_row_[k].row != row) a_row_[k] = {row, fetch(a_, row * blocks_ + k, a_buffer_.data() + k * elements_)};
    b_at_[k % 2] = fetch(b_, uint64_t{k} * blocks_ + column, b_buffers_[k % 2].data());
  }

  void compute_block(uint64_t index, TimeSplit& time) {
    double* const c = mine(c_, index);
    time.enter(Part::communication);
    fetch_factors(index, 0);
    for (uint32_t k = 0; k < blocks_; ++k) {
      sc::sync();
      if (k + 1 < blocks_) fetch_factors(index, k + 1);
      time.enter(Part::computation);
      multiply_add(c, a_row_[k].at, b_at_[k % 2], side_, [] { sc::poll(); });
      time.enter(Part::communication);
    }
    time.enter(Part::computation);
  }

  const uint32_t blocks_, side_;
  const uint64_t elements_, seed_;
  const Matrix a_, b_, c_;
  std::vector<double> a_buffer_;       // a row of blocks
  std::vector<FactorBlock> a_row_;     // by k
  std::array<std::vector<double>, 2> b_buffers_;
  std::array<const double*, 2> b_at_{};
};

std::string size_text(const Options& options) {
  const std::string blocks = std::to_string(options.blocks), block = std::to_string(options.block);
  return blocks + "x" + blocks + " blocks of " + block + "x" + block;
}

int program(int argc, char** argv) {
  Options options;
  CommandLine line("kernel_mm - blocked matrix multiply in Split-C, C = A * B: start it by unet-run -n P -- kernel_mm",
                   "The owner of a block of C computes it. While two blocks are multiplied the next two are fetched (bulk_get; a row of\n"
                   "A's blocks once), so communication hides behind computation. Many small blocks (--blocks 16 --block 16) show what\n"
                   "a fetch costs.");
  line.number("--blocks", options.blocks, 1, kBlocksMax, "blocks on a side of each matrix");
  line.number("--block", options.block, 1, kBlockMax, "elements on a side of each block");
  const Parsed parsed = parse(line, argc, argv);
  if (!parsed.options) return parsed.status;

  Multiply multiply(options, parsed.options->seed);
  Measurement result{.kernel = "mm", .size = size_text(options)};
  const double n = static_cast<double>(options.blocks) * options.block;
  result.operations = 2 * n * n * n;
  result.operation = "flop";
  const Work work{.begin = [&] { multiply.clear(); },
                  .run = [&](TimeSplit& time) { multiply.run(time); },
                  .count_wrong = [&] { return multiply.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
