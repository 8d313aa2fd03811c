// fft.cc - kernel_fft: the Fourier transform of a long vector, with one exchange of all ranks with all.
//
//   unet-run -n 4 -- kernel_fft                1 M points
//
// A vector of R * C points is a matrix of R rows: point r * C + c is in row r and column c. First transform each column. Then multiply
// element (k, c) by the root of unity number k * c. Then transform each row: element (k, m) is number k + R * m of the answer (Bailey
// 1990). Columns are dealt to ranks for the first part and rows for the last, so in between each rank stores pieces of rows at all others.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "am/splitc/splitc.h"
#include "apps/kernels/fourier.h"
#include "apps/kernels/kernel.h"
#include "apps/kernels/partition.h"
#include "apps/kernels/random.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

constexpr uint32_t kPointsLog2Max = 28;

struct Options {
  uint32_t points_log2 = 20;
};

Complex start_value(uint64_t seed, uint64_t point) noexcept {
  return {random_unit(seed, 2 * point) - 0.5, random_unit(seed, 2 * point + 1) - 0.5};
}

class Transform {
 public:
  Transform(const Options& options, uint64_t seed)
      : seed_(seed), rows_(uint64_t{1} << options.points_log2 / 2), columns_((uint64_t{1} << options.points_log2) / rows_),
        row_parts_(rows_, sc::procs()), column_parts_(columns_, sc::procs()), own_columns_(column_parts_.size(sc::my_proc())),
        first_column_(column_parts_.begin(sc::my_proc())),
        by_rows_(sc::all_spread_malloc<Complex>(sc::procs(), std::max<uint64_t>(row_parts_.size_max(), 1) * columns_)),
        down_(rows_), along_(columns_), by_columns_(own_columns_ * rows_), piece_(own_columns_) {}
  ~Transform() { sc::all_spread_free(by_rows_); }
  Transform(const Transform&) = delete;
  Transform& operator=(const Transform&) = delete;

  // The input lies column by column.
  void begin() {
    for (uint64_t c = 0; c < own_columns_; ++c) {
      for (uint64_t r = 0; r < rows_; ++r) by_columns_[c * rows_ + r] = start_value(seed_, r * columns_ + first_column_ + c);
    }
  }

  void run(TimeSplit& time) {
    transform_columns();
    time.enter(Part::communication);
    for (uint32_t distance = 1; distance <= sc::procs(); ++distance) store_rows((sc::my_proc() + distance) % sc::procs());
    sc::all_store_sync();
    time.enter(Part::computation);
    for (uint64_t row = 0; row < row_parts_.size(sc::my_proc()); ++row) {
      along_.transform(by_rows_.mine(0).subspan(row * columns_, columns_));
      sc::poll();
    }
  }

  // Sums in another order differ in their last bits, so the comparison has a tolerance.
  uint64_t count_wrong() const {
    std::vector<Complex> all(rows_ * columns_);
    for (uint64_t i = 0; i < all.size(); ++i) all[i] = start_value(seed_, i);
    Fourier(all.size()).transform(all);
    const double tolerance = 1e-12 * std::sqrt(static_cast<double>(all.size())) * static_cast<double>(std::bit_width(all.size()));
    const uint64_t first = row_parts_.begin(sc::my_proc());
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < row_parts_.size(sc::my_proc()) * columns_; ++i) {
      const Complex difference = by_rows_.mine(0)[i] - all[first + i / columns_ + rows_ * (i % columns_)];
      wrong += std::hypot(difference.re, difference.im) <= tolerance ? 0 : 1;
    }
    return wrong;
  }

 private:
  void transform_columns() {
    for (uint64_t c = 0; c < own_columns_; ++c) {
      const std::span<Complex> column = std::span(by_columns_).subspan(c * rows_, rows_);
      down_.transform(column);
      // The root number k * column for each k, by repeated multiplication, restarted before errors add up.
      constexpr uint64_t kExact = 16;
      const Complex step = root_of_unity(first_column_ + c, rows_ * columns_);
      Complex root;
      for (uint64_t k = 0; k < rows_; ++k) {
        root = k % kExact == 0 ? root_of_unity(k * (first_column_ + c), rows_ * columns_) : root * step;
        column[k] = column[k] * root;
      }
      sc::poll();
    }
  }

  // Stores this rank's piece of each row of `to`.
  void store_rows(sc::Rank to) {
    const uint64_t first = row_parts_.begin(to);
    for (uint64_t row = first; row < row_parts_.end(to); ++row) {
      for (uint64_t c = 0; c < own_columns_; ++c) piece_[c] = by_columns_[c * rows_ + row];
      sc::bulk_store(by_rows_.on(to) + static_cast<int64_t>((row - first) * columns_ + first_column_), piece_.data(), own_columns_);
    }
  }

  const uint64_t seed_;
  const uint64_t rows_, columns_;
  const Partition row_parts_, column_parts_;
  const uint64_t own_columns_, first_column_;
  const sc::Spread<Complex> by_rows_;      // spread memory before own memory, so that all ranks fail at once if there is too little
  const Fourier down_, along_;             // transforms of a column and of a row
  std::vector<Complex> by_columns_;
  std::vector<Complex> piece_;             // a piece of one row
};

int program(int argc, char** argv) {
  Options options;
  CommandLine line("kernel_fft - the Fourier transform in Split-C: start it by unet-run -n P -- kernel_fft",
                   "All data moves once, from ranks that have columns of a matrix to ranks that have its rows: each piece of a row is one\n"
                   "bulk_store to where it belongs, and all_store_sync() says that all have come.");
  line.number("--points", options.points_log2, 2, kPointsLog2Max, "of the vector, as a power of two");
  const Parsed parsed = parse(line, argc, argv);
  if (!parsed.options) return parsed.status;

  Transform transform(options, parsed.options->seed);
  Measurement result{.kernel = "fft", .size = "2^" + std::to_string(options.points_log2) + " points"};
  result.operations = 5.0 * options.points_log2 * static_cast<double>(uint64_t{1} << options.points_log2);
  result.operation = "flop";
  const Work work{.begin = [&] { transform.begin(); },
                  .run = [&](TimeSplit& time) { transform.run(time); },
                  .count_wrong = [&] { return transform.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
