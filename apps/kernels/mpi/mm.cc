// mm.cc - mpi_mm: blocked matrix multiply by MPI, to compare with kernel_mm.
//
//   mpirun -n 2 mpi_mm
//
// The blocks are dealt to a grid of ranks. In step k column k of A's blocks goes along the rows of the grid, and row k of B's along its
// columns, by broadcasts that overlap the computation of the step before (SUMMA: van de Geijn and Watts 1997).
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <mpi.h>

#include "apps/kernels/exact_matrix.h"
#include "apps/kernels/mpi/mpi_kernel.h"
#include "apps/kernels/multiply.h"

namespace unet::kernels {
namespace {

constexpr uint32_t kBlocksMax = 1024, kBlockMax = 4096;

struct Options {
  uint32_t blocks = 4;   // per side of a matrix
  uint32_t block = 128;  // elements per side of a block
};

// One direction of the grid: this rank's place among the ranks of its broadcasts. Block index i is at place i mod size.
class Line {
 public:
  Line(int place, int size, int other) : place_(static_cast<uint32_t>(place)), size_(static_cast<uint32_t>(size)) {
    MPI_Comm_split(MPI_COMM_WORLD, other, place, &ranks_);
  }
  ~Line() { MPI_Comm_free(&ranks_); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  uint32_t place() const noexcept { return place_; }
  uint32_t size() const noexcept { return size_; }
  // own() counts the block indices below `blocks` at this place; index() returns number `i` of them.
  uint32_t own(uint32_t blocks) const noexcept { return place_ < blocks ? (blocks - place_ + size_ - 1) / size_ : 0; }
  uint32_t index(uint32_t i) const noexcept { return i * size_ + place_; }
  bool has(uint32_t index) const noexcept { return index % size_ == place_; }
  // Broadcasts from the rank that has block index `index`.
  void broadcast(double* data, uint64_t count, uint32_t index, MPI_Request& request) const {
    MPI_Ibcast(data, static_cast<int>(count), MPI_DOUBLE, static_cast<int>(index % size_), ranks_, &request);
  }

 private:
  MPI_Comm ranks_ = MPI_COMM_NULL;
  uint32_t place_, size_;
};

struct Grid {
  int rows = 0, columns = 0;
};

Grid make_grid(uint32_t ranks) {
  std::array<int, 2> sides{};
  MPI_Dims_create(static_cast<int>(ranks), 2, sides.data());
  return {sides[0], sides[1]};
}

class Multiply {
 public:
  Multiply(MpiJob& job, const Options& options, uint64_t seed)
      : job_(job), blocks_(options.blocks), side_(options.block), elements_(uint64_t{options.block} * options.block), seed_(seed),
        grid_(make_grid(job.size())), row_(static_cast<int>(job.rank()) / grid_.columns),
        column_(static_cast<int>(job.rank()) % grid_.columns),
        down_(row_, grid_.rows, column_), along_(column_, grid_.columns, row_), rows_(down_.own(blocks_)), columns_(along_.own(blocks_)),
        a_(columns_ * rows_ * elements_), b_(rows_ * columns_ * elements_), c_(rows_ * columns_ * elements_) {
    for (auto& panel : a_panels_) panel.resize(rows_ * elements_);
    for (auto& panel : b_panels_) panel.resize(columns_ * elements_);
    for (uint32_t i = 0; i < rows_; ++i) {
      for (uint32_t j = 0; j < columns_; ++j) {
        fill_block(a_.data() + (j * rows_ + i) * elements_, seed, Factor::a, place(i, j));
        fill_block(b_.data() + (i * columns_ + j) * elements_, seed, Factor::b, place(i, j));
      }
    }
  }

  void clear() { std::fill(c_.begin(), c_.end(), 0.0); }

  void run(TimeSplit& time) {
    time.enter(Part::communication);
    std::array<Step, 2> steps;
    begin(0, steps[0]);
    for (uint32_t k = 0; k < blocks_; ++k) {
      Step& step = steps[k % 2];
      MPI_Waitall(static_cast<int>(step.requests.size()), step.requests.data(), MPI_STATUSES_IGNORE);
      if (k + 1 < blocks_) begin(k + 1, steps[(k + 1) % 2]);
      time.enter(Part::computation);
      compute(step, steps[(k + 1) % 2].requests);
      time.enter(Part::communication);
    }
    time.enter(Part::computation);
  }

  uint64_t count_wrong() const {
    const SerialProduct serial(uint64_t{blocks_} * side_, seed_);
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < rows_; ++i) {
      for (uint32_t j = 0; j < columns_; ++j) wrong += serial.count_wrong(c_.data() + (i * columns_ + j) * elements_, place(i, j));
    }
    return wrong;
  }

 private:
  // The blocks of A and B that a step multiplies.
  struct Step {
    double* a = nullptr;
    double* b = nullptr;
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  };

  BlockPlace place(uint32_t i, uint32_t j) const noexcept {
    return {uint64_t{down_.index(i)} * side_, uint64_t{along_.index(j)} * side_, side_};
  }

  // The owner of the blocks sends them from their place, without a copy.
  void begin(uint32_t k, Step& step) {
    step.a = along_.has(k) ? a_.data() + k / along_.size() * rows_ * elements_ : a_panels_[k % 2].data();
    step.b = down_.has(k) ? b_.data() + k / down_.size() * columns_ * elements_ : b_panels_[k % 2].data();
    along_.broadcast(step.a, rows_ * elements_, k, step.requests[0]);
    down_.broadcast(step.b, columns_ * elements_, k, step.requests[1]);
    if (along_.has(k)) job_.count(along_.size() - 1, (along_.size() - 1) * rows_ * elements_ * sizeof(double));
    if (down_.has(k)) job_.count(down_.size() - 1, (down_.size() - 1) * columns_ * elements_ * sizeof(double));
  }

  // Open MPI moves broadcasts only inside calls, so the computation tests them now and then.
  void compute(const Step& step, std::array<MPI_Request, 2>& under_way) {
    const auto progress = [&] {
      int done = 0;
      MPI_Testall(static_cast<int>(under_way.size()), under_way.data(), &done, MPI_STATUSES_IGNORE);
    };

    for (uint32_t i = 0; i < rows_; ++i) {
      for (uint32_t j = 0; j < columns_; ++j) {
        multiply_add(c_.data() + (i * columns_ + j) * elements_, step.a + i * elements_, step.b + j * elements_, side_, progress);
      }
    }
  }

  MpiJob& job_;
  const uint32_t blocks_, side_;
  const uint64_t elements_, seed_;
  const Grid grid_;
  const int row_, column_;            // in the grid
  const Line down_, along_;           // this rank's column of the grid, and its row
  const uint64_t rows_, columns_;     // blocks of each matrix here
  std::vector<double> a_, b_, c_;     // A column by column, the others row by row
  std::array<std::vector<double>, 2> a_panels_, b_panels_;
};

int program(MpiJob& job, int argc, char** argv) {
  Options options;
  CommandLine line("mpi_mm - blocked matrix multiply by MPI: start it by mpirun -n P mpi_mm", "Compare it with kernel_mm.");
  line.number("--blocks", options.blocks, 1, kBlocksMax, "blocks on a side of each matrix");
  line.number("--block", options.block, 1, kBlockMax, "elements on a side of each block");
  const Parsed parsed = line.parse(argc, argv, job.speaks());
  if (!parsed.options) return parsed.status;

  Multiply multiply(job, options, parsed.options->seed);
  const std::string blocks = std::to_string(options.blocks), block = std::to_string(options.block);
  Measurement result{.kernel = "mm", .size = blocks + "x" + blocks + " blocks of " + block + "x" + block};
  const double n = static_cast<double>(options.blocks) * options.block;
  result.operations = 2 * n * n * n;
  result.operation = "flop";
  const Work work{.begin = [&] { multiply.clear(); },
                  .run = [&](TimeSplit& time) { multiply.run(time); },
                  .count_wrong = [&] { return multiply.count_wrong(); }};
  measure_best(job, *parsed.options, work, result);
  return report(job, *parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) {
  unet::kernels::MpiJob job(&argc, &argv);
  return unet::kernels::program(job, argc, argv);
}
