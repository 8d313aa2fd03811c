// ssort.cc - mpi_ssort: sample sort by MPI, to compare with kernel_ssort --bulk.
//
//   mpirun -n 2 mpi_ssort
#include <string>
#include <vector>

#include "apps/kernels/mpi/mpi_kernel.h"
#include "apps/kernels/partition.h"
#include "apps/kernels/radix.h"
#include "apps/kernels/sort_keys.h"
#include "apps/kernels/splitters.h"

namespace unet::kernels {
namespace {

struct Options {
  uint64_t keys = kSortKeys;
  uint32_t samples = 1024;   // keys that each rank samples
};

class SampleSort {
 public:
  SampleSort(MpiJob& job, const Options& options, uint64_t seed)
      : job_(job), options_(options), input_(Partition(options.keys, job.size()).size(job.rank())), grouped_(input_.size()),
        sorted_(options.keys, seed) {
    fill_keys(input_, Partition(options.keys, job.size()).begin(job.rank()), seed);
  }

  void begin() { mine_ = {}; }

  void run(TimeSplit& time) {
    choose_splitters(time);
    std::vector<uint64_t> counts(job_.size()), next(job_.size());
    splitters_.count(input_, counts);
    for (size_t part = 1; part < counts.size(); ++part) next[part] = next[part - 1] + counts[part - 1];
    for (const uint32_t key : input_) grouped_[next[splitters_.part_of(key)]++] = key;
    time.enter(Part::communication);
    job_.all_to_all(grouped_, counts, received_);
    time.enter(Part::computation);
    other_.resize(received_.size());
    mine_ = radix_sort(received_, other_, [] {});
  }

  uint64_t count_wrong() {
    const uint64_t first = job_.sum_before(mine_.size());
    const uint64_t total = job_.sum(uint64_t{mine_.size()});
    const uint64_t lost = job_.rank() == 0 && total < options_.keys ? options_.keys - total : 0;
    return lost + sorted_.count_wrong(mine_, first);
  }

 private:
  void choose_splitters(TimeSplit& time) {
    std::vector<uint32_t> own(options_.samples), all(own.size() * job_.size());
    for (uint64_t i = 0; i < own.size(); ++i) own[i] = input_.empty() ? 0 : input_[i * input_.size() / own.size()];
    time.enter(Part::communication);
    job_.all_gather(own, all);
    time.enter(Part::computation);
    splitters_.choose(all, job_.size());
  }

  MpiJob& job_;
  const Options options_;
  std::vector<uint32_t> input_, grouped_, received_, other_;
  Splitters splitters_;
  std::span<uint32_t> mine_;   // the keys sorted here
  SortedKeys sorted_;          // for comparison
};

int program(MpiJob& job, int argc, char** argv) {
  Options options;
  CommandLine line("mpi_ssort - sample sort by MPI: start it by mpirun -n P mpi_ssort", "Compare it with kernel_ssort --bulk.");
  line.number("--keys", options.keys, 1, kSortKeysMax - 1, "32-bit keys to sort, of all ranks");
  line.number("--samples", options.samples, 1, 1u << 16, "keys that each rank gives to choose splitters from");
  const Parsed parsed = line.parse(argc, argv, job.speaks());
  if (!parsed.options) return parsed.status;

  SampleSort sort(job, options, parsed.options->seed);
  Measurement result{.kernel = "ssort bulk", .size = std::to_string(options.keys) + " keys"};
  result.operations = static_cast<double>(options.keys);
  result.operation = "keys";
  const Work work{.begin = [&] { sort.begin(); },
                  .run = [&](TimeSplit& time) { sort.run(time); },
                  .count_wrong = [&] { return sort.count_wrong(); }};
  measure_best(job, *parsed.options, work, result);
  return report(job, *parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) {
  unet::kernels::MpiJob job(&argc, &argv);
  return unet::kernels::program(job, argc, argv);
}
