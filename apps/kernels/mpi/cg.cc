// cg.cc - mpi_cg: conjugate gradient by MPI, to compare with kernel_cg.
//
//   mpirun -n 2 mpi_cg
//
// It computes the rows that need no neighbour while the neighbours' rows are in flight.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <mpi.h>

#include "apps/kernels/mpi/mpi_kernel.h"
#include "apps/kernels/partition.h"
#include "apps/kernels/poisson.h"

namespace unet::kernels {
namespace {

class ConjugateGradient {
 public:
  ConjugateGradient(MpiJob& job, const PoissonOptions& options, uint64_t seed)
      : job_(job), options_(options), seed_(seed), side_(options.side), strips_(options.side, job.size()), rows_(strips_.size(job.rank())),
        with_neighbours_((rows_ + 2) * side_), p_(std::span(with_neighbours_).subspan(side_, rows_ * side_)), x_(p_.size()), r_(p_.size()),
        q_(p_.size()) {}

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
  uint64_t first_unknown() const noexcept { return strips_.begin(job_.rank()) * side_; }

  double sum_of_all(double own, TimeSplit& time) {
    time.enter(Part::communication);
    const double total = job_.sum(own);
    time.enter(Part::computation);
    return total;
  }

  void multiply(TimeSplit& time) {
    time.enter(Part::communication);
    std::array<MPI_Request, 4> requests{};
    exchange_edges(requests);
    time.enter(Part::computation);
    constexpr uint64_t kRowsBetween = 64;   // rows between two calls: Open MPI moves messages only inside calls
    for (uint64_t row = 1; row + 1 < rows_; row += kRowsBetween) {
      apply_poisson(q_, with_neighbours_, side_, row, std::min(row + kRowsBetween, rows_ - 1));
      int done = 0;
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    }
    time.enter(Part::communication);
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    time.enter(Part::computation);
    apply_poisson(q_, with_neighbours_, side_, 0, 1);
    if (rows_ > 1) apply_poisson(q_, with_neighbours_, side_, rows_ - 1, rows_);
  }

  // Without a neighbour, the message to MPI_PROC_NULL does nothing.
  void exchange_edges(std::array<MPI_Request, 4>& requests) {
    const int count = static_cast<int>(side_), me = static_cast<int>(job_.rank()), size = static_cast<int>(job_.size());
    const int above = me > 0 ? me - 1 : MPI_PROC_NULL, below = me + 1 < size ? me + 1 : MPI_PROC_NULL;
    double* const last = p_.data() + (rows_ - 1) * side_;
    MPI_Irecv(with_neighbours_.data(), count, MPI_DOUBLE, above, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(last + side_, count, MPI_DOUBLE, below, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(p_.data(), count, MPI_DOUBLE, above, 0, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(last, count, MPI_DOUBLE, below, 0, MPI_COMM_WORLD, &requests[3]);
    const uint64_t neighbours = (above != MPI_PROC_NULL ? 1u : 0u) + (below != MPI_PROC_NULL ? 1u : 0u);
    job_.count(neighbours, neighbours * side_ * sizeof(double));
  }

  MpiJob& job_;
  const PoissonOptions options_;
  const uint64_t seed_;
  const uint64_t side_;
  const Partition strips_;   // of the grid's rows
  const uint64_t rows_;      // of this rank
  std::vector<double> with_neighbours_;
  const std::span<double> p_;
  std::vector<double> x_, r_, q_;
  double rho_ = 0;
};

int program(MpiJob& job, int argc, char** argv) {
  PoissonOptions options;
  CommandLine line("mpi_cg - conjugate gradient by MPI: start it by mpirun -n P mpi_cg", "Compare it with kernel_cg.");
  line.number("--side", options.side, 1, kPoissonSideMax, "unknowns on a side of the grid");
  line.number("--iterations", options.iterations, 1, 1u << 20, "of the solver");
  const Parsed parsed = line.parse(argc, argv, job.speaks());
  if (!parsed.options) return parsed.status;
  if (options.side < job.size()) return usage_error(argv[0], "--side: each rank needs a row", job.speaks());

  ConjugateGradient solver(job, options, parsed.options->seed);
  const std::string side = std::to_string(options.side);
  Measurement result{.kernel = "cg", .size = side + "x" + side + " unknowns, " + std::to_string(options.iterations) + " iterations"};
  result.operations = poisson_operations(options);
  result.operation = "flop";
  const Work work{.begin = [&] { solver.begin(); },
                  .run = [&](TimeSplit& time) { solver.run(time); },
                  .count_wrong = [&] { return solver.count_wrong(); }};
  measure_best(job, *parsed.options, work, result);
  result.facts = {{"residual", solver.residual()}};
  return report(job, *parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) {
  unet::kernels::MpiJob job(&argc, &argv);
  return unet::kernels::program(job, argc, argv);
}
