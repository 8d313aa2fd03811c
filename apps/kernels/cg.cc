// cg.cc - kernel_cg: conjugate gradient on Poisson's equation, with a strip of the grid per rank.
//
//   unet-run -n 4 -- kernel_cg                   512 x 512 unknowns, 100 iterations
//   unet-run -n 4 -- kernel_cg --side 64         little to compute between two messages
//
// In each iteration a rank stores its first and last row into its neighbours' memory. It computes the rows that need no neighbour, waits
// for the neighbours' rows (store_sync), and computes the rest. Two dot products are sums over all ranks. A rank stores its next rows only
// after the sum that follows their use, so one place for each row is enough.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "am/splitc/splitc.h"
#include "apps/kernels/edges.h"
#include "apps/kernels/kernel.h"
#include "apps/kernels/partition.h"
#include "apps/kernels/poisson.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

class ConjugateGradient {
 public:
  ConjugateGradient(const PoissonOptions& options, uint64_t seed)
      : options_(options), seed_(seed), side_(options.side), strips_(options.side, sc::procs()), rows_(strips_.size(sc::my_proc())),
        room_((strips_.size_max() + 2) * side_), vectors_(sc::all_spread_malloc<double>(sc::procs(), 4 * room_)),
        with_neighbours_(vectors_.mine(0).first((rows_ + 2) * side_)), p_(vector(0)), x_(vector(1)), r_(vector(2)), q_(vector(3)) {}
  ~ConjugateGradient() { sc::all_spread_free(vectors_); }
  ConjugateGradient(const ConjugateGradient&) = delete;
  ConjugateGradient& operator=(const ConjugateGradient&) = delete;

  void begin() {
    std::fill(with_neighbours_.begin(), with_neighbours_.end(), 0.0);
    std::fill(x_.begin(), x_.end(), 0.0);
    for (size_t i = 0; i < r_.size(); ++i) p_[i] = r_[i] = poisson_right_side(seed_, first_unknown() + i);
  }

  void run(TimeSplit& time) {
    rho_ = conjugate_gradient({x_, r_, p_, q_}, options_.iterations, [&] { multiply(time); },
                              [&](double own) { return sum_of_all(own, time); });
  }

  double residual() const { return std::sqrt(rho_); }
  uint64_t count_wrong() const { return count_wrong_unknowns(x_, first_unknown(), options_, seed_); }

 private:
  uint64_t first_unknown() const noexcept { return strips_.begin(sc::my_proc()) * side_; }
  std::span<double> vector(size_t number) const { return vectors_.mine(0).subspan(number * room_ + side_, rows_ * side_); }
  bool has_above() const noexcept { return sc::my_proc() > 0; }
  bool has_below() const noexcept { return sc::my_proc() + 1 < sc::procs(); }

  double sum_of_all(double own, TimeSplit& time) {
    time.enter(Part::communication);
    const double total = sc::all_reduce_add(own);
    time.enter(Part::computation);
    return total;
  }

  // Computes q = A p.
  void multiply(TimeSplit& time) {
    time.enter(Part::communication);
    store_edges(vectors_, strips_, side_);
    time.enter(Part::computation);
    constexpr uint64_t kRowsBetween = 64;   // rows between two polls
    for (uint64_t row = 1; row + 1 < rows_; row += kRowsBetween) {
      apply_poisson(q_, with_neighbours_, side_, row, std::min(row + kRowsBetween, rows_ - 1));
      sc::poll();
    }
    time.enter(Part::communication);
    sc::store_sync((uint64_t{has_above()} + uint64_t{has_below()}) * side_ * sizeof(double));
    time.enter(Part::computation);
    apply_poisson(q_, with_neighbours_, side_, 0, 1);
    if (rows_ > 1) apply_poisson(q_, with_neighbours_, side_, rows_ - 1, rows_);
  }

  const PoissonOptions options_;
  const uint64_t seed_;
  const uint64_t side_;
  const Partition strips_;   // of the grid's rows
  const uint64_t rows_;      // of this rank
  // All vectors lie in one array, although others write only to the first. Each begins at the same place of a page (with the default size),
  // and no load waits for a store to another address with the same lowest 12 bits.
  const uint64_t room_;   // of a vector
  const sc::Spread<double> vectors_;
  const std::span<double> with_neighbours_, p_;   // this rank's part of p, with and without a row of each neighbour
  const std::span<double> x_, r_, q_;
  double rho_ = 0;
};

int program(int argc, char** argv) {
  PoissonOptions options;
  CommandLine line("kernel_cg - conjugate gradient in Split-C: start it by unet-run -n P -- kernel_cg",
                   "Each rank has a strip of the rows of a square grid. Its first and last row go to its neighbours by bulk_store, which\n"
                   "tells them by store_sync() that they are there, while the rows between are computed. Two all_reduce_add() per\n"
                   "iteration make a small grid (--side 64) a measurement of the latency of small messages.");
  line.number("--side", options.side, 1, kPoissonSideMax, "unknowns on a side of the grid");
  line.number("--iterations", options.iterations, 1, 1u << 20, "of the solver");
  const Parsed parsed = parse(line, argc, argv);
  if (!parsed.options) return parsed.status;
  if (options.side < sc::procs()) return refuse(argv[0], "--side: each rank needs a row");

  ConjugateGradient solver(options, parsed.options->seed);
  const std::string side = std::to_string(options.side);
  Measurement result{.kernel = "cg", .size = side + "x" + side + " unknowns, " + std::to_string(options.iterations) + " iterations"};
  result.operations = poisson_operations(options);
  result.operation = "flop";
  const Work work{.begin = [&] { solver.begin(); },
                  .run = [&](TimeSplit& time) { solver.run(time); },
                  .count_wrong = [&] { return solver.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  result.facts = {{"residual", solver.residual()}};
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
