// rsort.cc - kernel_rsort: radix sort, as in the U-Net paper, by small messages or in bulk.
//
//   unet-run -n 4 -- kernel_rsort                      4 M keys, one per message
//   unet-run -n 4 -- kernel_rsort --bulk --bits 8      keys that go to the same place together
//
// One pass per digit, from the lowest to the highest. Each rank counts its keys of each value, and all ranks exchange their counts. Each
// rank then knows the position of each of its keys in the order by that digit, and stores it there.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "am/splitc/splitc.h"
#include "apps/kernels/kernel.h"
#include "apps/kernels/partition.h"
#include "apps/kernels/radix.h"
#include "apps/kernels/sort_keys.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

constexpr uint32_t kKeyBits = 32;

struct Options {
  uint64_t keys = kSortKeys;
  uint32_t bits = 11;   // bits of a digit
  bool bulk = false;
};

class RadixSort {
 public:
  RadixSort(const Options& options, uint64_t seed)
      : options_(options), seed_(seed), values_(1u << options.bits), parts_(options.keys, sc::procs()),
        from_(make_keys()), to_(make_keys()), counts_(sc::all_spread_malloc<uint32_t>(sc::procs(), uint64_t{values_} * sc::procs())),
        own_counts_(values_), starts_(values_), grouped_(options.bulk ? size() : 0), sorted_(options.keys, seed) {}
  ~RadixSort() {
    sc::all_spread_free(counts_);
    sc::all_spread_free(to_);
    sc::all_spread_free(from_);
  }
  RadixSort(const RadixSort&) = delete;
  RadixSort& operator=(const RadixSort&) = delete;

  void fill() { fill_keys(mine(from_), parts_.begin(sc::my_proc()), seed_); }

  void run(TimeSplit& time) {
    for (uint32_t shift = 0; shift < kKeyBits; shift += options_.bits) {
      count(shift);
      time.enter(Part::communication);
      sc::all_bulk_gather(counts_, own_counts_);
      time.enter(Part::computation);
      find_starts();
      if (options_.bulk) {
        store_runs(shift, time);
      } else {
        store_keys(shift, time);
      }
      time.enter(Part::communication);
      sc::all_store_sync();
      time.enter(Part::computation);
      std::swap(from_, to_);
    }
  }

  uint64_t count_wrong() { return sorted_.count_wrong(mine(from_), parts_.begin(sc::my_proc())); }

 private:
  static constexpr auto poll_ = [] { sc::poll(); };

  // The place for the next key of one value, and how many more keys go to the same rank.
  struct Place {
    sc::Global<uint32_t> next;
    uint64_t left = 0;
  };

  uint64_t size() const noexcept { return parts_.size(sc::my_proc()); }
  sc::Spread<uint32_t> make_keys() const { return sc::all_spread_malloc<uint32_t>(sc::procs(), std::max<uint64_t>(parts_.size_max(), 1)); }
  std::span<uint32_t> mine(const sc::Spread<uint32_t>& keys) const { return keys.mine(0).first(size()); }
  uint32_t value(uint32_t key, uint32_t shift) const noexcept { return key >> shift & (values_ - 1); }

  void count(uint32_t shift) {
    std::fill(own_counts_.begin(), own_counts_.end(), 0u);
    const std::span<const uint32_t> keys = mine(from_);
    in_pieces(keys.size(), poll_, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) ++own_counts_[value(keys[i], shift)];
    });
  }

  // Computes the position of this rank's first key of each value: after all keys of lesser values, and after those of this value at lower
  // ranks.
  void find_starts() {
    std::vector<uint64_t> everywhere(values_);
    std::fill(starts_.begin(), starts_.end(), 0);
    for (sc::Rank rank = 0; rank < sc::procs(); ++rank) {
      const uint32_t* const counts = counts_.mine(0).data() + uint64_t{rank} * values_;
      for (uint32_t v = 0; v < values_; ++v) {
        everywhere[v] += counts[v];
        if (rank < sc::my_proc()) starts_[v] += counts[v];
      }
    }
    uint64_t lesser = 0;
    for (uint32_t v = 0; v < values_; ++v) {
      starts_[v] += lesser;
      lesser += everywhere[v];
    }
  }

  Place place_of(uint64_t position) const {
    const sc::Rank rank = parts_.owner(position);
    return {to_.on(rank) + static_cast<int64_t>(position - parts_.begin(rank)), parts_.end(rank) - position};
  }

  void store_keys(uint32_t shift, TimeSplit& time) {
    time.enter(Part::communication);
    std::vector<Place> places(values_);
    for (const uint32_t key : mine(from_)) {
      const uint32_t v = value(key, shift);
      Place& place = places[v];
      if (place.left == 0) place = place_of(starts_[v]);
      sc::store(place.next++, key);
      --place.left;
      ++starts_[v];
    }
  }

  // Keys of one value that are neighbours here are neighbours there, so a run of them is one store.
  void store_runs(uint32_t shift, TimeSplit& time) {
    group(shift);
    time.enter(Part::communication);
    const uint32_t* keys = grouped_.data();
    for (uint32_t v = 0; v < values_; ++v) {
      for (uint64_t left = own_counts_[v]; left > 0;) {
        const Place place = place_of(starts_[v]);
        const uint64_t run = std::min(left, place.left);
        sc::bulk_store(place.next, keys, run);
        keys += run;
        starts_[v] += run;
        left -= run;
      }
    }
  }

  void group(uint32_t shift) {
    std::vector<uint32_t> next(values_);
    for (uint32_t v = 1; v < values_; ++v) next[v] = next[v - 1] + own_counts_[v - 1];
    const std::span<const uint32_t> keys = mine(from_);
    in_pieces(keys.size(), poll_, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) grouped_[next[value(keys[i], shift)]++] = keys[i];
    });
  }

  const Options options_;
  const uint64_t seed_;
  const uint32_t values_;   // values of a digit
  const Partition parts_;
  sc::Spread<uint32_t> from_, to_;
  const sc::Spread<uint32_t> counts_;   // counts of all ranks, one after the other, at every rank
  std::vector<uint32_t> own_counts_;
  std::vector<uint64_t> starts_;        // by value: position of this rank's next key
  std::vector<uint32_t> grouped_;
  SortedKeys sorted_;                   // for comparison
};

int program(int argc, char** argv) {
  Options options;
  CommandLine line("kernel_rsort - radix sort in Split-C: start it by unet-run -n P -- kernel_rsort",
                   "By default each key is a store of its own to where it belongs: most messages a program can send. With --bulk a rank\n"
                   "sorts its keys by the digit first: those of one value are neighbours here and there, and go in one bulk_store.\n"
                   "Fewer bits per digit make more passes over the keys, but longer runs and fewer counts to exchange.");
  line.number("--keys", options.keys, 1, kSortKeysMax, "32-bit keys to sort, of all ranks");
  line.number("--bits", options.bits, 1, 16, "of a digit");
  line.flag("--bulk", options.bulk, "keys that go to the same place together");
  const Parsed parsed = parse(line, argc, argv);
  if (!parsed.options) return parsed.status;

  RadixSort sort(options, parsed.options->seed);
  Measurement result{.kernel = options.bulk ? "rsort bulk" : "rsort small", .size = std::to_string(options.keys) + " keys"};
  result.operations = static_cast<double>(options.keys);
  result.operation = "keys";
  const Work work{.begin = [&] { sort.fill(); },
                  .run = [&](TimeSplit& time) { sort.run(time); },
                  .count_wrong = [&] { return sort.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
