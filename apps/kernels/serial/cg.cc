// cg.cc - serial_cg: conjugate gradient by one process, to compare with kernel_cg and mpi_cg.
//
//   serial_cg                  512 x 512 unknowns, 100 iterations
#include <cmath>
#include <string>

#include "apps/kernels/poisson.h"
#include "apps/kernels/serial/serial_kernel.h"

namespace unet::kernels {
namespace {

// Evaluates the equation of each unknown independently: its residual must equal the solver's.
uint64_t count_wrong(const SerialPoisson& solver, const PoissonOptions& options, uint64_t seed) {
  constexpr double kTolerance = 1e-9;   // right sides are at most a half
  const uint64_t side = options.side;
  const std::span<const double> x = solver.x(), lacking = solver.r();
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < x.size(); ++i) {
    const uint64_t row = i / side, column = i % side;
    double left = 4 * x[i];
    if (row > 0) left -= x[i - side];
    if (row + 1 < side) left -= x[i + side];
    if (column > 0) left -= x[i - 1];
    if (column + 1 < side) left -= x[i + 1];
    wrong += std::fabs(poisson_right_side(seed, i) - left - lacking[i]) <= kTolerance ? 0 : 1;
  }
  return wrong;
}

int program(int argc, char** argv) {
  PoissonOptions options;
  CommandLine line("serial_cg - conjugate gradient by one process",
                   "Compare kernel_cg and mpi_cg with it: it solves the same equations by the same steps.");
  line.number("--side", options.side, 1, kPoissonSideMax, "unknowns on a side of the grid");
  line.number("--iterations", options.iterations, 1, 1u << 20, "of the solver");
  const Parsed parsed = line.parse(argc, argv, true);
  if (!parsed.options) return parsed.status;

  const uint64_t seed = parsed.options->seed;
  SerialPoisson solver(options, seed);
  const std::string side = std::to_string(options.side);
  Measurement result{.kernel = "cg", .size = side + "x" + side + " unknowns, " + std::to_string(options.iterations) + " iterations"};
  result.operations = poisson_operations(options);
  result.operation = "flop";
  result.reference = "the equations";
  const Work work{.begin = [&] { solver.begin(); },
                  .run = [&](TimeSplit&) { solver.run(); },
                  .count_wrong = [&] { return count_wrong(solver, options, seed); }};
  measure_best(*parsed.options, work, result);
  result.facts = {{"residual", solver.residual()}};
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::kernels::program(argc, argv); }
