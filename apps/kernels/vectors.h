// vectors.h - conjugate gradient and its vector operations on one core; used by cg and npb_cg and the programs compared with them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace unet::kernels {

// Adds up several sums side by side: with one, each addition would wait for the one before.
inline double dot(std::span<const double> a, std::span<const double> b) noexcept {
  constexpr size_t kSums = 8;
  std::array<double, kSums> sums{};
  size_t i = 0;
  for (; i + kSums <= a.size(); i += kSums) {
    for (size_t each = 0; each < kSums; ++each) sums[each] += a[i + each] * b[i + each];
  }
  double total = 0;
  for (; i < a.size(); ++i) total += a[i] * b[i];
  for (const double sum : sums) total += sum;
  return total;
}

// Computes y += factor * x.
inline void add_multiple(std::span<double> y, double factor, std::span<const double> x) noexcept {
  for (size_t i = 0; i < y.size(); ++i) y[i] += factor * x[i];
}

// Computes p = r + factor * p.
inline void turn(std::span<double> p, double factor, std::span<const double> r) noexcept {
  for (size_t i = 0; i < p.size(); ++i) p[i] = r[i] + factor * p[i];
}

// One rank's parts of the vectors of A x = b.
struct GradientVectors {
  std::span<double> x;   // the answer
  std::span<double> r;   // the residual b - A x
  std::span<double> p;   // direction of the next step
  std::span<double> q;   // A p
};

// Conjugate gradient (Hestenes and Stiefel 1952): up to `iterations` steps, fewer if the residual becomes 0. p must equal r at the start.
// `multiply()` computes q from p; `sum(own)` adds a number over all ranks. Returns the final square of r, over all ranks.
template <typename Multiply, typename Sum>
double conjugate_gradient(const GradientVectors& vectors, uint32_t iterations, const Multiply& multiply, const Sum& sum) {
  const auto [x, r, p, q] = vectors;
  double rho = sum(dot(r, r));
  for (uint32_t i = 0; i < iterations && rho > 0; ++i) {
    multiply();
    const double alpha = rho / sum(dot(p, q));
    add_multiple(x, alpha, p);
    add_multiple(r, -alpha, q);
    const double before = rho;
    rho = sum(dot(r, r));
    turn(p, rho / before, r);
  }
  return rho;
}

}  // namespace unet::kernels
