// npb_cg.cc - kernel_npb_cg: CG of the NAS Parallel Benchmarks: the least eigenvalue of a sparse random matrix, by inverse iteration.
//
//   unet-run -n 2 -- kernel_npb_cg             class A: 14,000 rows
//   unet-run -n 2 -- kernel_npb_cg --class S
//
// The rows are dealt to the ranks. A row has elements in any column, so before each product every rank stores its part of the vector at all
// others. The answer is compared with the published one.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "am/splitc/splitc.h"
#include "apps/kernels/kernel.h"
#include "apps/kernels/npb_matrix.h"
#include "apps/kernels/partition.h"
#include "apps/kernels/vectors.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

constexpr uint32_t kInnerIterations = 25;
constexpr double kTolerance = 1e-10;   // of the answer; the benchmark demands it

const std::map<std::string, NpbCgClass>& classes() {
  static const std::map<std::string, NpbCgClass> all{
      {"S", {1400, 7, 15, 10, 8.5971775078648}},
      {"W", {7000, 8, 15, 12, 10.362595087124}},
      {"A", {14000, 11, 15, 20, 17.130235054029}},
  };
  return all;
}

class InverseIteration {
 public:
  explicit InverseIteration(const NpbCgClass& problem)
      : problem_(problem), parts_(problem.rows, sc::procs()), first_(parts_.begin(sc::my_proc())), rows_(parts_.size(sc::my_proc())),
        whole_(sc::all_spread_malloc<double>(sc::procs(), problem.rows)), matrix_(make_npb_matrix(problem, first_, rows_)), x_(rows_),
        z_(rows_), p_(rows_), q_(rows_), r_(rows_) {}
  ~InverseIteration() { sc::all_spread_free(whole_); }
  InverseIteration(const InverseIteration&) = delete;
  InverseIteration& operator=(const InverseIteration&) = delete;

  void begin() {
    std::fill(x_.begin(), x_.end(), 1.0);
    zeta_ = 0;
  }

  void run(TimeSplit& time) {
    for (uint32_t i = 0; i < problem_.iterations; ++i) {
      solve(time);
      const double xz = sum_of_all(dot(x_, z_), time);
      const double factor = 1 / std::sqrt(sum_of_all(dot(z_, z_), time));
      for (uint64_t row = 0; row < rows_; ++row) x_[row] = factor * z_[row];
      zeta_ = problem_.shift + 1 / xz;
    }
  }

  double zeta() const noexcept { return zeta_; }
  double residual() const noexcept { return residual_; }
  bool is_right() const noexcept { return std::fabs(zeta_ - problem_.zeta) <= kTolerance * problem_.zeta; }

 private:
  double sum_of_all(double own, TimeSplit& time) {
    time.enter(Part::communication);
    const double total = sc::all_reduce_add(own);
    time.enter(Part::computation);
    return total;
  }

  // Solves A z = x approximately, and computes the residual.
  void solve(TimeSplit& time) {
    std::fill(z_.begin(), z_.end(), 0.0);
    r_ = x_;
    p_ = x_;
    conjugate_gradient({z_, r_, p_, q_}, kInnerIterations, [&] { multiply(p_, time); },
                       [&](double own) { return sum_of_all(own, time); });
    multiply(z_, time);
    double distance = 0;
    for (uint64_t row = 0; row < rows_; ++row) distance += (x_[row] - q_[row]) * (x_[row] - q_[row]);
    residual_ = std::sqrt(sum_of_all(distance, time));
  }

  // Computes q = A `vector`; each rank has a part of the vector. All take part in a sum before the next product, so no rank still uses the
  // vector then.
  void multiply(const std::vector<double>& vector, TimeSplit& time) {
    time.enter(Part::communication);
    for (uint32_t distance = 1; distance <= sc::procs(); ++distance) {
      const sc::Rank to = (sc::my_proc() + distance) % sc::procs();
      sc::bulk_store(whole_.on(to) + static_cast<int64_t>(first_), vector.data(), rows_);
    }
    sc::all_store_sync();
    time.enter(Part::computation);
    const double* const whole = whole_.mine(0).data();
    for (uint64_t row = 0; row < rows_; ++row) {
      double sum = 0;
      for (uint64_t i = matrix_.starts[row]; i < matrix_.starts[row + 1]; ++i) sum += matrix_.values[i] * whole[matrix_.columns[i]];
      q_[row] = sum;
    }
  }

  const NpbCgClass problem_;
  const Partition parts_;              // of the rows
  const uint64_t first_, rows_;        // of this rank
  const sc::Spread<double> whole_;     // the whole vector, at every rank
  const SparseRows matrix_;
  std::vector<double> x_, z_, p_, q_, r_;
  double zeta_ = 0, residual_ = 0;
};

// Counts operations by the benchmark's formula.
double operations(const NpbCgClass& problem) {
  const double products = 3 + static_cast<double>(problem.nonzeros) * (problem.nonzeros + 1);
  return 2.0 * problem.iterations * problem.rows * (products + kInnerIterations * (products + 2) + 3);
}

int program(int argc, char** argv) {
  std::string name = "A";
  CommandLine line("kernel_npb_cg - CG of the NAS Parallel Benchmarks in Split-C: start it by unet-run -n P -- kernel_npb_cg",
                   "Classes: S 1,400 rows, W 7,000, A 14,000. Each of 15 iterations solves a system by 25 steps of conjugate gradient,\n"
                   "and each step stores a whole vector at all ranks and adds up two numbers over all.");
  line.choice("--class", name, {"S", "W", "A"}, "size of the problem");
  line.fix_input();
  const Parsed parsed = parse(line, argc, argv);
  if (!parsed.options) return parsed.status;

  const NpbCgClass& problem = classes().at(name);
  InverseIteration iteration(problem);
  Measurement result{.kernel = "npb cg", .size = "class " + name + ", " + std::to_string(problem.rows) + " rows"};
  result.operations = operations(problem);
  result.operation = "flop";
  result.reference = "the published zeta";
  const Work work{.begin = [&] { iteration.begin(); },
                  .run = [&](TimeSplit& time) { iteration.run(time); },
                  .count_wrong = [&] { return iteration.is_right() ? 0u : 1u; }};
  measure_best(*parsed.options, work, result);
  result.facts = {{"zeta", iteration.zeta()}, {"residual", iteration.residual()}};
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
