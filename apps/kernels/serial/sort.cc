// sort.cc - serial_sort: a sort by one process, to compare with the sample sorts and the radix sorts.
//
//   serial_sort                4 M keys
//
// It is a radix sort, which takes a third of the time of std::sort.
#include <string>
#include <vector>

#include "apps/kernels/radix.h"
#include "apps/kernels/serial/serial_kernel.h"
#include "apps/kernels/sort_keys.h"

namespace unet::kernels {
namespace {

class Sort {
 public:
  Sort(uint64_t keys, uint64_t seed) : seed_(seed), keys_(keys), other_(keys), serial_(keys, seed) {}

  void begin() { fill_keys(keys_, 0, seed_); }
  void run() { sorted_ = radix_sort(keys_, other_, [] {}); }
  uint64_t count_wrong() { return serial_.count_wrong(sorted_, 0); }

 private:
  const uint64_t seed_;
  std::vector<uint32_t> keys_, other_;
  std::span<uint32_t> sorted_;
  SortedKeys serial_;   // for comparison
};

int program(int argc, char** argv) {
  uint64_t keys = kSortKeys;
  CommandLine line("serial_sort - radix sort by one process",
                   "Compare kernel_ssort, kernel_rsort, mpi_ssort and mpi_rsort with it: it sorts the same keys.");
  line.number("--keys", keys, 1, kSortKeysMax, "32-bit keys to sort");
  const Parsed parsed = line.parse(argc, argv, true);
  if (!parsed.options) return parsed.status;

  Sort sort(keys, parsed.options->seed);
  Measurement result{.kernel = "sort", .size = std::to_string(keys) + " keys"};
  result.operations = static_cast<double>(keys);
  result.operation = "keys";
  result.reference = "std::sort";
  const Work work{.begin = [&] { sort.begin(); },
                  .run = [&](TimeSplit&) { sort.run(); },
                  .count_wrong = [&] { return sort.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::kernels::program(argc, argv); }
