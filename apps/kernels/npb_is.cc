// npb_is.cc - kernel_npb_is: IS of the NAS Parallel Benchmarks: rank integer keys, ten times.
//
//   unet-run -n 2 -- kernel_npb_is             class A: 8 M keys below 2^19
//   unet-run -n 2 -- kernel_npb_is --class S
//
// The highest bits of a key choose its bucket. Consecutive buckets are dealt to ranks, so that each rank has about as many keys. A rank
// counts the keys of its range; sums of these counts are the keys' ranks. In each iteration five keys are compared with published ranks. At
// the end all are compared with a serial answer.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "am/splitc/splitc.h"
#include "apps/kernels/kernel.h"
#include "apps/kernels/key_exchange.h"
#include "apps/kernels/npb.h"
#include "apps/kernels/partition.h"
#include "apps/kernels/radix.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

constexpr uint32_t kIterations = 10, kTests = 5;

// The rank of a test key moves by `sign` times (iteration + `shift`), because each iteration changes two keys.
struct Test {
  uint64_t index;
  uint64_t rank;
  int64_t sign, shift;
};

struct ProblemClass {
  uint32_t keys_log2, key_log2, buckets_log2;
  std::array<Test, kTests> tests;
};

const std::map<std::string, ProblemClass>& classes() {
  static const std::map<std::string, ProblemClass> all{
      {"S", {16, 11, 9, {{{48427, 0, 1, 0}, {17148, 18, 1, 0}, {23627, 346, 1, 0}, {62548, 64917, -1, 0}, {4431, 65463, -1, 0}}}}},
      {"W", {20, 16, 10,
             {{{357773, 1249, 1, -2}, {934767, 11698, 1, -2}, {875723, 1039987, -1, 0}, {898999, 1043896, -1, 0},
               {404505, 1048018, -1, 0}}}}},
      {"A", {23, 19, 10,
             {{{2112377, 104, 1, -1}, {662041, 17523, 1, -1}, {5336171, 123928, 1, -1}, {3642833, 8288932, -1, -1},
               {4250760, 8388264, -1, -1}}}}},
  };
  return all;
}

// Sets keys from number `first` on: each is the sum of four random numbers of (0, 1), times a quarter of the number of values.
void fill_keys(std::span<uint32_t> keys, uint64_t first, uint32_t key_log2) {
  NpbRandom random;
  random.skip(4 * first);
  for (uint32_t& key : keys) {
    uint64_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += random.next_bits();
    key = static_cast<uint32_t>(sum >> (NpbRandom::kBits + 2 - key_log2));
  }
}

// Changes the two keys of an iteration, if they are in `keys`, which begins at number `first`.
void change_keys(std::span<uint32_t> keys, uint64_t first, uint32_t iteration, uint32_t key_log2) {
  const auto set = [&](uint64_t index, uint32_t key) {
    if (index >= first && index - first < keys.size()) keys[index - first] = key;
  };
  set(iteration, iteration);
  set(iteration + kIterations, (1u << key_log2) - iteration);
}

class IntegerSort {
 public:
  explicit IntegerSort(const ProblemClass& problem)
      : problem_(problem), shift_(problem.key_log2 - problem.buckets_log2), buckets_(1u << problem.buckets_log2),
        parts_(uint64_t{1} << problem.keys_log2, sc::procs()), first_(parts_.begin(sc::my_proc())),
        counts_(sc::all_spread_malloc<uint32_t>(sc::procs(), uint64_t{buckets_} * sc::procs())), exchange_(parts_.size_max() / 8 * 9),
        own_counts_(buckets_), keys_(parts_.size(sc::my_proc())), grouped_(keys_.size()) {}
  ~IntegerSort() { sc::all_spread_free(counts_); }
  IntegerSort(const IntegerSort&) = delete;
  IntegerSort& operator=(const IntegerSort&) = delete;

  void begin() {
    exchange_.forget();
    fill_keys(keys_, first_, problem_.key_log2);
    right_ = wrong_ = 0;
  }

  void run(TimeSplit& time) {
    for (uint32_t iteration = 1; iteration <= kIterations; ++iteration) {
      change_keys(keys_, first_, iteration, problem_.key_log2);
      const std::array<uint32_t, kTests> tested = test_keys(time);
      count_buckets(time);
      send(time);
      rank_received();
      compare(tested, iteration);
    }
  }

  // Counts ranks that differ from the published ones, and keys with another rank than in the serial answer.
  uint64_t count_wrong() {
    const uint64_t compared = sc::all_reduce_add(right_ + wrong_);
    const uint64_t expected = uint64_t{kTests} * kIterations;
    const uint64_t not_compared = sc::my_proc() == 0 ? expected - std::min(compared, expected) : 0;
    return wrong_ + not_compared + count_wrong_ranks();
  }

 private:
  static constexpr auto poll_ = [] { sc::poll(); };

  // Returns the keys with published ranks; their owners tell all ranks.
  std::array<uint32_t, kTests> test_keys(TimeSplit& time) {
    std::array<uint32_t, kTests> own{};
    for (uint32_t i = 0; i < kTests; ++i) {
      const uint64_t index = problem_.tests[i].index;
      if (index >= first_ && index - first_ < keys_.size()) own[i] = keys_[index - first_];
    }
    time.enter(Part::communication);
    const auto all = sc::all_reduce(own, [](std::array<uint32_t, kTests> a, const std::array<uint32_t, kTests>& b) {
      for (uint32_t i = 0; i < kTests; ++i) a[i] += b[i];
      return a;
    });
    time.enter(Part::computation);
    return all;
  }

  void count_buckets(TimeSplit& time) {
    std::fill(own_counts_.begin(), own_counts_.end(), 0u);
    in_pieces(keys_.size(), poll_, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) ++own_counts_[keys_[i] >> shift_];
    });
    time.enter(Part::communication);
    sc::all_bulk_gather(counts_, own_counts_);
    time.enter(Part::computation);
    deal_buckets();
  }

  // Divides all keys into equal shares, and gives a bucket to the rank of the share in which it begins. A rank's buckets are thus
  // neighbours.
  void deal_buckets() {
    first_bucket_.assign(sc::procs() + 1, buckets_);
    const uint32_t* const counts = counts_.mine(0).data();
    const uint64_t all = parts_.count();
    uint64_t before = 0;
    sc::Rank owner = 0;
    first_bucket_[0] = 0;
    lesser_ = 0;
    for (uint32_t bucket = 0; bucket < buckets_; ++bucket) {
      const auto wanted = static_cast<sc::Rank>(std::min<uint64_t>(before * sc::procs() / all, sc::procs() - 1));
      while (owner < wanted) {
        first_bucket_[++owner] = bucket;
        if (owner == sc::my_proc()) lesser_ = before;
      }
      for (sc::Rank rank = 0; rank < sc::procs(); ++rank) before += counts[uint64_t{rank} * buckets_ + bucket];
    }
    if (owner < sc::my_proc()) lesser_ = all;
  }

  void send(TimeSplit& time) {
    std::vector<uint64_t> counts(sc::procs());
    for (sc::Rank rank = 0; rank < sc::procs(); ++rank) {
      for (uint32_t bucket = first_bucket_[rank]; bucket < first_bucket_[rank + 1]; ++bucket) counts[rank] += own_counts_[bucket];
    }
    time.enter(Part::communication);
    exchange_.announce(counts);
    time.enter(Part::computation);
    group(exchange_.group_at(grouped_));
    time.enter(Part::communication);
    exchange_.store();
    exchange_.collect();
    time.enter(Part::computation);
  }

  // Groups keys by bucket, and so by rank.
  void group(std::span<uint32_t* const> places) {
    std::vector<uint32_t*> next(buckets_);
    for (sc::Rank rank = 0; rank < sc::procs(); ++rank) {
      uint32_t* at = places[rank];
      for (uint32_t bucket = first_bucket_[rank]; bucket < first_bucket_[rank + 1]; ++bucket) {
        next[bucket] = at;
        at += own_counts_[bucket];
      }
    }
    in_pieces(keys_.size(), poll_, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) *next[keys_[i] >> shift_]++ = keys_[i];
    });
  }

  // Sets up_to_[i] to the number of this rank's keys up to its least possible key + i.
  void rank_received() {
    least_ = first_bucket_[sc::my_proc()] << shift_;
    const uint32_t end = first_bucket_[sc::my_proc() + 1] << shift_;
    up_to_.assign(end - least_, 0u);
    const std::span<const uint32_t> keys = exchange_.received();
    in_pieces(keys.size(), poll_, [&](size_t begin, size_t last) {
      for (size_t i = begin; i < last; ++i) ++up_to_[keys[i] - least_];
    });
    for (size_t i = 1; i < up_to_.size(); ++i) up_to_[i] += up_to_[i - 1];
  }

  bool is_mine(uint32_t key) const noexcept { return key >= least_ && key - least_ < up_to_.size(); }
  // Counts the keys less than `key`, which must be in this rank's range.
  uint64_t rank_of(uint32_t key) const noexcept { return lesser_ + (key == least_ ? 0 : up_to_[key - least_ - 1]); }

  void compare(const std::array<uint32_t, kTests>& tested, uint32_t iteration) {
    for (uint32_t i = 0; i < kTests; ++i) {
      if (!is_mine(tested[i])) continue;
      const Test& test = problem_.tests[i];
      const int64_t expected = static_cast<int64_t>(test.rank) + test.sign * (static_cast<int64_t>(iteration) + test.shift);
      const bool right = static_cast<int64_t>(rank_of(tested[i])) == expected;
      right_ += right ? 1 : 0;
      wrong_ += right ? 0 : 1;
    }
  }

  // Returns the keys as they are after the last iteration, sorted when first needed.
  const std::vector<uint32_t>& sorted_keys() {
    if (!sorted_.empty()) return sorted_;
    sorted_.resize(parts_.count());
    fill_keys(sorted_, 0, problem_.key_log2);
    for (uint32_t iteration = 1; iteration <= kIterations; ++iteration) change_keys(sorted_, 0, iteration, problem_.key_log2);
    std::sort(sorted_.begin(), sorted_.end());
    return sorted_;
  }

  uint64_t count_wrong_ranks() {
    const std::vector<uint32_t>& all = sorted_keys();
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < up_to_.size(); ++i) {
      const auto key = static_cast<uint32_t>(least_ + i);
      const auto rank = static_cast<uint64_t>(std::lower_bound(all.begin(), all.end(), key) - all.begin());
      wrong += rank_of(key) != rank ? 1 : 0;
    }
    return wrong;
  }

  const ProblemClass problem_;
  const uint32_t shift_, buckets_;
  const Partition parts_;                // of the keys
  const uint64_t first_;                 // of this rank's keys
  const sc::Spread<uint32_t> counts_;    // counts of the buckets of all ranks, at every rank
  KeyExchange exchange_;                 // spread memory before own memory, so that all ranks fail at once if there is too little
  std::vector<uint32_t> own_counts_;
  std::vector<uint32_t> keys_, grouped_;
  std::vector<uint32_t> first_bucket_;   // by rank: its first bucket
  uint32_t least_ = 0;                   // least key of this rank's range
  uint64_t lesser_ = 0;                  // keys of ranks before this one
  std::vector<uint32_t> up_to_;
  uint64_t right_ = 0, wrong_ = 0;       // published ranks that agree, or not
  std::vector<uint32_t> sorted_;         // all keys, for comparison
};

int program(int argc, char** argv) {
  std::string name = "A";
  CommandLine line("kernel_npb_is - IS of the NAS Parallel Benchmarks in Split-C: start it by unet-run -n P -- kernel_npb_is",
                   "Classes: S 65,536 keys below 2,048; W 1,048,576 below 65,536; A 8,388,608 below 524,288. Ten times two keys change\n"
                   "and all keys are ranked anew. Most keys move to another rank each time: IS measures bulk stores of all to all.");
  line.choice("--class", name, {"S", "W", "A"}, "size of the problem");
  line.fix_input();
  const Parsed parsed = parse(line, argc, argv);
  if (!parsed.options) return parsed.status;

  const ProblemClass& problem = classes().at(name);
  IntegerSort sort(problem);
  const uint64_t keys = uint64_t{1} << problem.keys_log2;
  Measurement result{.kernel = "npb is", .size = "class " + name + ", " + std::to_string(keys) + " keys"};
  result.operations = static_cast<double>(keys) * kIterations;
  result.operation = "keys";
  result.reference = "the published ranks and the serial answer";
  const Work work{.begin = [&] { sort.begin(); },
                  .run = [&](TimeSplit& time) { sort.run(time); },
                  .count_wrong = [&] { return sort.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
