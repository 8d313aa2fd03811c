// rsort.cc - mpi_rsort: radix sort by MPI, to compare with kernel_rsort --bulk.
//
//   mpirun -n 2 mpi_rsort
//
// In each pass a rank sends all keys for another rank as one piece. The receiver knows from the counts of all ranks which keys have which
// digit, and puts them in their places.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "apps/kernels/mpi/mpi_kernel.h"
#include "apps/kernels/partition.h"
#include "apps/kernels/sort_keys.h"

namespace unet::kernels {
namespace {

constexpr uint32_t kKeyBits = 32;

struct Options {
  uint64_t keys = kSortKeys;
  uint32_t bits = 11;   // bits of a digit
};

class RadixSort {
 public:
  RadixSort(MpiJob& job, const Options& options, uint64_t seed)
      : job_(job), options_(options), seed_(seed), values_(1u << options.bits), parts_(options.keys, job.size()),
        keys_(parts_.size(job.rank())), grouped_(keys_.size()), own_counts_(values_), counts_(uint64_t{values_} * job.size()),
        starts_(uint64_t{values_} * job.size()), sorted_(options.keys, seed) {}

  void fill() { fill_keys(keys_, parts_.begin(job_.rank()), seed_); }

  void run(TimeSplit& time) {
    for (uint32_t shift = 0; shift < kKeyBits; shift += options_.bits) {
      std::fill(own_counts_.begin(), own_counts_.end(), 0u);
      for (const uint32_t key : keys_) ++own_counts_[value(key, shift)];
      time.enter(Part::communication);
      job_.all_gather(own_counts_, counts_);
      time.enter(Part::computation);
      find_starts();
      group(shift);
      const std::vector<uint64_t> sent = counts_for_each();
      time.enter(Part::communication);
      job_.all_to_all(grouped_, sent, received_);
      time.enter(Part::computation);
      put_in_place();
    }
  }

  uint64_t count_wrong() { return sorted_.count_wrong(keys_, parts_.begin(job_.rank())); }

 private:
  uint32_t value(uint32_t key, uint32_t shift) const noexcept { return key >> shift & (values_ - 1); }
  size_t at(uint32_t rank, uint32_t v) const noexcept { return uint64_t{rank} * values_ + v; }

  // Computes the position of each rank's first key of each value.
  void find_starts() {
    uint64_t position = 0;
    for (uint32_t v = 0; v < values_; ++v) {
      for (uint32_t rank = 0; rank < job_.size(); ++rank) {
        starts_[at(rank, v)] = position;
        position += counts_[at(rank, v)];
      }
    }
  }

  void group(uint32_t shift) {
    std::vector<uint32_t> next(values_);
    for (uint32_t v = 1; v < values_; ++v) next[v] = next[v - 1] + own_counts_[v - 1];
    for (const uint32_t key : keys_) grouped_[next[value(key, shift)]++] = key;
  }

  // Returns how much of the run [start, start + count) lies in the positions of `rank`.
  uint64_t overlap(uint32_t rank, uint64_t start, uint64_t count) const noexcept {
    const uint64_t begin = std::max(start, parts_.begin(rank)), end = std::min(start + count, parts_.end(rank));
    return end > begin ? end - begin : 0;
  }

  std::vector<uint64_t> counts_for_each() const {
    std::vector<uint64_t> sent(job_.size());
    for (uint32_t v = 0; v < values_; ++v) {
      uint64_t position = starts_[at(job_.rank(), v)];
      for (uint64_t left = own_counts_[v]; left > 0;) {
        const uint32_t owner = parts_.owner(position);
        const uint64_t run = std::min(left, parts_.end(owner) - position);
        sent[owner] += run;
        position += run;
        left -= run;
      }
    }
    return sent;
  }

  void put_in_place() {
    const uint64_t first = parts_.begin(job_.rank());
    const uint32_t* from = received_.data();
    for (uint32_t rank = 0; rank < job_.size(); ++rank) {
      for (uint32_t v = 0; v < values_; ++v) {
        const uint64_t start = starts_[at(rank, v)], run = overlap(job_.rank(), start, counts_[at(rank, v)]);
        if (run == 0) continue;
        std::memcpy(keys_.data() + (std::max(start, first) - first), from, run * sizeof(uint32_t));
        from += run;
      }
    }
  }

  MpiJob& job_;
  const Options options_;
  const uint64_t seed_;
  const uint32_t values_;   // values of a digit
  const Partition parts_;
  std::vector<uint32_t> keys_, grouped_, received_;
  std::vector<uint32_t> own_counts_, counts_;   // by value; counts_ has those of all ranks, one after the other
  std::vector<uint64_t> starts_;                // likewise
  SortedKeys sorted_;                           // for comparison
};

int program(MpiJob& job, int argc, char** argv) {
  Options options;
  CommandLine line("mpi_rsort - radix sort by MPI: start it by mpirun -n P mpi_rsort", "Compare it with kernel_rsort --bulk.");
  line.number("--keys", options.keys, 1, kSortKeysMax - 1, "32-bit keys to sort, of all ranks");
  line.number("--bits", options.bits, 1, 16, "of a digit");
  const Parsed parsed = line.parse(argc, argv, job.speaks());
  if (!parsed.options) return parsed.status;

  RadixSort sort(job, options, parsed.options->seed);
  Measurement result{.kernel = "rsort bulk", .size = std::to_string(options.keys) + " keys"};
  result.operations = static_cast<double>(options.keys);
  result.operation = "keys";
  const Work work{.begin = [&] { sort.fill(); },
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
