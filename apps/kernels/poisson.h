// poisson.h - the system that cg solves: Poisson's equation on a square grid dealt to ranks in strips of rows; used by cg in Split-C, by
// MPI and serially, and for the reference answer.
//
// The unknowns of a strip lie row by row, between a row of the rank above and one of the rank below. Those are 0 at the edges of the grid.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/kernels/random.h"
#include "apps/kernels/vectors.h"

namespace unet::kernels {

struct PoissonOptions {
  uint32_t side = 512;         // unknowns per side of the grid
  uint32_t iterations = 100;
};
constexpr uint32_t kPoissonSideMax = 16384;

inline double poisson_right_side(uint64_t seed, uint64_t unknown) noexcept { return random_unit(seed, unknown) - 0.5; }

// Computes rows [first, last) of q = A p: four times the unknown minus its neighbours. q has the rows of the strip; p has one more on each
// side.
inline void apply_poisson(std::span<double> q, std::span<const double> p, size_t side, size_t first, size_t last) noexcept {
  for (size_t row = first; row < last; ++row) {
    double* __restrict const to = q.data() + row * side;
    const double* const at = p.data() + (row + 1) * side;
    const double* const above = at - side;
    const double* const below = at + side;
    const auto first_terms = [&](size_t i) { return 4 * at[i] - above[i] - below[i]; };
    if (side == 1) {
      to[0] = first_terms(0);
      continue;
    }
    to[0] = first_terms(0) - at[1];
    for (size_t i = 1; i + 1 < side; ++i) to[i] = first_terms(i) - at[i - 1] - at[i + 1];
    to[side - 1] = first_terms(side - 1) - at[side - 2];
  }
}

// Solves the whole grid in one process by the same steps.
class SerialPoisson {
 public:
  SerialPoisson(const PoissonOptions& options, uint64_t seed)
      : options_(options), seed_(seed), side_(options.side), with_edges_((side_ + 2) * side_),
        p_(std::span(with_edges_).subspan(side_, side_ * side_)), x_(p_.size()), r_(p_.size()), q_(p_.size()) {}

  void begin() {
    std::fill(x_.begin(), x_.end(), 0.0);
    for (size_t i = 0; i < r_.size(); ++i) p_[i] = r_[i] = poisson_right_side(seed_, i);
  }
  void run() {
    rho_ = conjugate_gradient({x_, r_, p_, q_}, options_.iterations, [&] { apply_poisson(q_, with_edges_, side_, 0, side_); },
                              [](double own) { return own; });
  }

  std::span<const double> x() const noexcept { return x_; }
  std::span<const double> r() const noexcept { return r_; }   // b - A x, as updated by the steps
  double residual() const { return std::sqrt(rho_); }

 private:
  const PoissonOptions options_;
  const uint64_t seed_;
  const size_t side_;
  std::vector<double> with_edges_;
  const std::span<double> p_;
  std::vector<double> x_, r_, q_;
  double rho_ = 0;
};

// Counts the elements of `own`, the unknowns from `first` on, that differ from the serial solution. Sums in another order differ in their
// last bits, and the difference grows with each step, so the comparison has a tolerance.
inline uint64_t count_wrong_unknowns(std::span<const double> own, uint64_t first, const PoissonOptions& options, uint64_t seed) {
  constexpr double kTolerance = 1e-7;  // relative to the greatest unknown
  SerialPoisson serial(options, seed);
  serial.begin();
  serial.run();
  const std::span<const double> all = serial.x();
  double greatest = 0;
  for (const double each : all) greatest = std::fmax(greatest, std::fabs(each));
  uint64_t wrong = 0;
  for (size_t i = 0; i < own.size(); ++i) wrong += std::fabs(own[i] - all[first + i]) <= kTolerance * greatest ? 0 : 1;
  return wrong;
}

// Counts the operations of one solution: the product, two dot products, three updates of vectors.
inline double poisson_operations(const PoissonOptions& options) noexcept {
  return 16.0 * options.side * options.side * options.iterations;
}

}  // namespace unet::kernels
