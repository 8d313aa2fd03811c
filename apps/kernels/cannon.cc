// cannon.cc - kernel_cannon: matrix multiply by Cannon's algorithm, on a square of ranks.
//
//   unet-run -n 4 -- kernel_cannon
//
// Each of q * q ranks has one block of each matrix (Cannon 1969). First row i of A's blocks moves i places to the left, and column j of B's
// moves j places up. Then in each of q steps a rank multiplies its blocks while it stores them at its left and upper neighbours. Each rank
// has two places per matrix: one to compute from, one to receive into.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "am/splitc/splitc.h"
#include "apps/kernels/exact_matrix.h"
#include "apps/kernels/kernel.h"
#include "apps/kernels/multiply.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

constexpr uint32_t kSideMax = 16384;

struct Options {
  uint32_t side = 512;   // elements
};

// Returns q if there are q * q ranks, else 0.
uint32_t square_root(uint32_t ranks) noexcept {
  uint32_t q = 1;
  while (q * q < ranks) ++q;
  return q * q == ranks ? q : 0;
}

class Cannon {
 public:
  Cannon(uint32_t side, uint32_t q, uint64_t seed)
      : side_(side), q_(q), block_(side / q), elements_(uint64_t{block_} * block_), row_(sc::my_proc() / q), column_(sc::my_proc() % q),
        seed_(seed), a_places_{make(), make()}, b_places_{make(), make()}, a_(elements_), b_(elements_), c_(elements_) {
    fill_block(a_.data(), seed, Factor::a, place());
    fill_block(b_.data(), seed, Factor::b, place());
  }
  ~Cannon() {
    for (const auto& places : {b_places_, a_places_}) {
      for (const auto& each : places) sc::all_spread_free(each);
    }
  }
  Cannon(const Cannon&) = delete;
  Cannon& operator=(const Cannon&) = delete;

  void clear() { std::fill(c_.begin(), c_.end(), 0.0); }

  void run(TimeSplit& time) {
    time.enter(Part::communication);
    sc::bulk_store(a_places_[0].on(rank_at(row_, column_ + q_ - row_)), a_.data(), elements_);
    sc::bulk_store(b_places_[0].on(rank_at(row_ + q_ - column_, column_)), b_.data(), elements_);
    sc::all_store_sync();
    for (uint32_t step = 0; step < q_; ++step) {
      const double* const a = own(a_places_[step % 2]);
      const double* const b = own(b_places_[step % 2]);
      if (step + 1 < q_) {
        sc::bulk_store(a_places_[(step + 1) % 2].on(rank_at(row_, column_ + q_ - 1)), a, elements_);
        sc::bulk_store(b_places_[(step + 1) % 2].on(rank_at(row_ + q_ - 1, column_)), b, elements_);
      }
      time.enter(Part::computation);
      multiply_add(c_.data(), a, b, block_, [] { sc::poll(); });
      time.enter(Part::communication);
      sc::all_store_sync();   // no rank still uses the places for the next step's blocks
    }
    time.enter(Part::computation);
  }

  uint64_t count_wrong() const { return SerialProduct(side_, seed_).count_wrong(c_.data(), place()); }

 private:
  using Places = std::array<sc::Spread<double>, 2>;

  sc::Spread<double> make() const { return sc::all_spread_malloc<double>(sc::procs(), elements_); }
  double* own(const sc::Spread<double>& blocks) const { return blocks.mine(0).data(); }
  BlockPlace place() const noexcept { return {uint64_t{row_} * block_, uint64_t{column_} * block_, block_}; }
  sc::Rank rank_at(uint32_t row, uint32_t column) const noexcept { return row % q_ * q_ + column % q_; }

  const uint32_t side_, q_, block_;
  const uint64_t elements_;
  const uint32_t row_, column_;   // of this rank
  const uint64_t seed_;
  const Places a_places_, b_places_;   // spread memory before own memory, so that all ranks fail at once if there is too little
  std::vector<double> a_, b_, c_;
};

int program(int argc, char** argv) {
  Options options;
  CommandLine line("kernel_cannon - Cannon's matrix multiply in Split-C: start it by unet-run -n P -- kernel_cannon, P = 1, 4, 9, 16, ...",
                   "Every rank has one block of each matrix and talks to four neighbours only, and knows where its blocks belong there:\n"
                   "a bulk_store per matrix and step, and all_store_sync(). kernel_mm fetches blocks from whoever has them.");
  line.number("--side", options.side, 1, kSideMax, "elements on a side of each matrix; the root of P divides it");
  const Parsed parsed = parse(line, argc, argv);
  if (!parsed.options) return parsed.status;
  const uint32_t q = square_root(sc::procs());
  if (q == 0) return refuse(argv[0], "the number of ranks must be a square: 1, 4, 9, 16");
  if (options.side % q != 0) return refuse(argv[0], "--side must be a multiple of " + std::to_string(q));

  Cannon cannon(options.side, q, parsed.options->seed);
  const std::string side = std::to_string(options.side);
  Measurement result{.kernel = "cannon", .size = side + "x" + side + " elements"};
  const double n = options.side;
  result.operations = 2 * n * n * n;
  result.operation = "flop";
  const Work work{.begin = [&] { cannon.clear(); },
                  .run = [&](TimeSplit& time) { cannon.run(time); },
                  .count_wrong = [&] { return cannon.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
