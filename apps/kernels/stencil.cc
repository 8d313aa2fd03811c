// stencil.cc - kernel_stencil: each point of a grid becomes the mean of its four neighbours, over and over (Jacobi).
//
//   unet-run -n 4 -- kernel_stencil
//
// Each rank has a strip of rows. It computes its first and last row first and stores them into its neighbours' memory. It computes the
// others while those are in flight. Two copies of the strip take turns, so that no rank writes what another still reads.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "am/splitc/splitc.h"
#include "apps/kernels/edges.h"
#include "apps/kernels/kernel.h"
#include "apps/kernels/partition.h"
#include "apps/kernels/random.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

constexpr uint32_t kSideMax = 16384;

struct Options {
  uint32_t side = 1024;   // points per side
  uint32_t steps = 100;
};

// Computes rows [first, last) of a strip with another row above and below. The points at the left and right edge stay.
void step_rows(double* to, const double* from, size_t side, size_t first, size_t last) noexcept {
  for (size_t row = first; row < last; ++row) {
    const double* const at = from + row * side;
    const double* const above = at - side;
    const double* const below = at + side;
    double* const out = to + row * side;
    out[0] = at[0];
    for (size_t i = 1; i + 1 < side; ++i) out[i] = 0.25 * ((at[i - 1] + at[i + 1]) + (above[i] + below[i]));
    out[side - 1] = at[side - 1];
  }
}

double start_value(uint64_t seed, uint64_t point) noexcept { return random_unit(seed, point); }

class Stencil {
 public:
  Stencil(const Options& options, uint64_t seed)
      : options_(options), seed_(seed), side_(options.side), strips_(options.side, sc::procs()), rows_(strips_.size(sc::my_proc())),
        copies_{make(), make()} {}
  ~Stencil() {
    sc::all_spread_free(copies_[1]);
    sc::all_spread_free(copies_[0]);
  }
  Stencil(const Stencil&) = delete;
  Stencil& operator=(const Stencil&) = delete;

  // Clears the rows around the grid in both copies.
  void begin() {
    const uint64_t first = strips_.begin(sc::my_proc()) * side_;
    for (const auto& copy : copies_) std::fill_n(copy.mine(0).data(), (rows_ + 2) * side_, 0.0);
    for (uint64_t i = 0; i < rows_ * side_; ++i) own(0)[side_ + i] = start_value(seed_, first + i);
    sc::barrier();   // no rank stores into rows that are still being cleared
    store_edges(copies_[0], strips_, side_);
    sc::all_store_sync();
  }

  void run(TimeSplit& time) {
    constexpr uint64_t kRowsBetween = 64;   // rows between two polls
    for (uint32_t step = 0; step < options_.steps; ++step) {
      const uint32_t from = step % 2, to = 1 - from;
      step_rows(own(to), own(from), side_, 1, 2);
      step_rows(own(to), own(from), side_, rows_, rows_ + 1);
      time.enter(Part::communication);
      store_edges(copies_[to], strips_, side_);
      time.enter(Part::computation);
      for (uint64_t row = 2; row < rows_; row += kRowsBetween) {
        step_rows(own(to), own(from), side_, row, std::min(row + kRowsBetween, rows_));
        sc::poll();
      }
      time.enter(Part::communication);
      sc::all_store_sync();
      time.enter(Part::computation);
    }
  }

  // Compares bit by bit: a serial run computes each point in the same way.
  uint64_t count_wrong() const {
    std::vector<double> from((side_ + 2) * side_), to((side_ + 2) * side_);
    for (uint64_t i = 0; i < side_ * side_; ++i) from[side_ + i] = start_value(seed_, i);
    for (uint32_t step = 0; step < options_.steps; ++step) {
      step_rows(to.data(), from.data(), side_, 1, side_ + 1);
      std::swap(from, to);
    }
    const uint64_t first = strips_.begin(sc::my_proc()) * side_;
    const double* const mine = own(options_.steps % 2);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < rows_ * side_; ++i) wrong += mine[side_ + i] != from[side_ + first + i] ? 1 : 0;
    return wrong;
  }

 private:
  sc::Spread<double> make() const { return sc::all_spread_malloc<double>(sc::procs(), (strips_.size_max() + 2) * side_); }
  double* own(uint32_t copy) const { return copies_[copy].mine(0).data(); }

  const Options options_;
  const uint64_t seed_;
  const uint64_t side_;
  const Partition strips_;   // of the rows
  const uint64_t rows_;      // of this rank
  const std::array<sc::Spread<double>, 2> copies_;
};

int program(int argc, char** argv) {
  Options options;
  CommandLine line("kernel_stencil - a five-point stencil in Split-C: start it by unet-run -n P -- kernel_stencil",
                   "Each rank has a strip of the grid and stores its edges into its neighbours' memory in every step (bulk_store), while\n"
                   "it computes what needs none of theirs. The larger the strip, the less its edges matter.");
  line.number("--side", options.side, 2, kSideMax, "points on a side of the grid");
  line.number("--steps", options.steps, 1, 1u << 20, "of the iteration");
  const Parsed parsed = parse(line, argc, argv);
  if (!parsed.options) return parsed.status;
  if (options.side < sc::procs()) return refuse(argv[0], "--side: each rank needs a row");

  Stencil stencil(options, parsed.options->seed);
  const std::string side = std::to_string(options.side);
  Measurement result{.kernel = "stencil", .size = side + "x" + side + " points, " + std::to_string(options.steps) + " steps"};
  result.operations = 4.0 * options.side * options.side * options.steps;
  result.operation = "flop";
  const Work work{.begin = [&] { stencil.begin(); },
                  .run = [&](TimeSplit& time) { stencil.run(time); },
                  .count_wrong = [&] { return stencil.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
