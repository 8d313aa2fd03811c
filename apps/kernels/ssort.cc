// ssort.cc - kernel_ssort: sample sort, as in the U-Net paper, by small messages or in bulk.
//
//   unet-run -n 4 -- kernel_ssort            4 M keys, two per message
//   unet-run -n 4 -- kernel_ssort --bulk     one message from each rank to each other
//
// Each rank gives a sample of its keys; every rank sorts all samples and takes P - 1 splitters. Each rank gets the keys between two
// splitters and sorts them. Rank 0 gets the least keys, and the last rank the greatest.
#include <algorithm>
#include <string>
#include <vector>

#include "am/splitc/splitc.h"
#include "apps/kernels/kernel.h"
#include "apps/kernels/key_exchange.h"
#include "apps/kernels/partition.h"
#include "apps/kernels/radix.h"
#include "apps/kernels/sort_keys.h"
#include "apps/kernels/splitters.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

struct Options {
  uint64_t keys = kSortKeys;
  uint32_t samples = 1024;   // keys that each rank samples
  bool bulk = false;
};

class SampleSort {
 public:
  SampleSort(const Options& options, uint64_t seed)
      : options_(options), samples_(sc::all_spread_malloc<uint32_t>(sc::procs(), uint64_t{options.samples} * sc::procs())),
        exchange_(options.keys / sc::procs() / 4 * 5 + uint64_t{2} * sc::procs()),
        input_(Partition(options.keys, sc::procs()).size(sc::my_proc())), grouped_(input_.size()), sorted_(options.keys, seed) {
    fill_keys(input_, Partition(options.keys, sc::procs()).begin(sc::my_proc()), seed);
  }
  ~SampleSort() { sc::all_spread_free(samples_); }
  SampleSort(const SampleSort&) = delete;
  SampleSort& operator=(const SampleSort&) = delete;

  void begin() {
    exchange_.forget();
    mine_ = {};
  }

  void run(TimeSplit& time) {
    choose_splitters(time);
    std::vector<uint64_t> counts(sc::procs());
    in_pieces(input_.size(), poll_, [&](size_t begin, size_t end) {
      splitters_.count(std::span(input_).subspan(begin, end - begin), counts);
    });
    if (options_.bulk) {
      send_in_bulk(counts, time);
    } else {
      send_pairs(counts, time);
    }
    other_.resize(mine_.size());
    mine_ = radix_sort(mine_, other_, poll_);
  }

  uint64_t count_wrong() {
    const uint64_t size = mine_.size();
    const uint64_t first = sc::all_scan_add(size) - size;
    const uint64_t total = sc::all_reduce_add(size);
    const uint64_t lost = sc::my_proc() == 0 && total < options_.keys ? options_.keys - total : 0;
    return lost + sorted_.count_wrong(mine_, first);
  }

 private:
  static constexpr auto poll_ = [] { sc::poll(); };

  // Samples keys at even distances; the input is in random order.
  void choose_splitters(TimeSplit& time) {
    std::vector<uint32_t> own(options_.samples);
    for (uint64_t i = 0; i < own.size(); ++i) own[i] = input_.empty() ? 0 : input_[i * input_.size() / own.size()];
    time.enter(Part::communication);
    sc::all_bulk_gather(samples_, own);
    time.enter(Part::computation);
    splitters_.choose(samples_.mine(0), sc::procs());
  }

  void send_in_bulk(const std::vector<uint64_t>& counts, TimeSplit& time) {
    time.enter(Part::communication);
    exchange_.announce(counts);
    time.enter(Part::computation);
    group(exchange_.group_at(grouped_));
    time.enter(Part::communication);
    exchange_.store();
    exchange_.collect();
    time.enter(Part::computation);
    mine_ = exchange_.received();
  }

  // Puts the keys for each rank together.
  void group(std::span<uint32_t* const> places) {
    std::vector<uint32_t*> next(places.begin(), places.end());
    in_pieces(input_.size(), poll_, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) *next[splitters_.part_of(input_[i])]++ = input_[i];
    });
  }

  // Two keys make one word, which is one message.
  void send_pairs(const std::vector<uint64_t>& counts, TimeSplit& time) {
    struct Outgoing {
      sc::Global<uint64_t> next;
      uint64_t first = 0;
      bool half = false;   // the first key of a pair is waiting for the second
    };
    time.enter(Part::communication);
    exchange_.announce(counts, 2);
    std::vector<Outgoing> outgoing(sc::procs());
    for (sc::Rank to = 0; to < sc::procs(); ++to) outgoing[to].next = exchange_.place(to).as<uint64_t>();
    for (const uint32_t key : input_) {
      Outgoing& out = outgoing[splitters_.part_of(key)];
      if (out.half) sc::store(out.next++, out.first | uint64_t{key} << 32);
      out.first = key;
      out.half = !out.half;
    }
    for (const Outgoing& out : outgoing) {
      if (out.half) sc::store(out.next, out.first);  // with a dummy as second key: the receiver knows the count
    }
    exchange_.collect();
    time.enter(Part::computation);
    gather_received();
  }

  // An odd number of keys of a sender leaves a hole behind them.
  void gather_received() {
    together_.clear();
    for (sc::Rank from = 0; from < sc::procs(); ++from) {
      const std::span<const uint32_t> keys = exchange_.received(from);
      together_.insert(together_.end(), keys.begin(), keys.end());
    }
    mine_ = together_;
  }

  const Options options_;
  // Spread memory comes first: if there is too little, no rank should have filled its own memory before that is noticed.
  const sc::Spread<uint32_t> samples_;
  KeyExchange exchange_;
  std::vector<uint32_t> input_;
  Splitters splitters_;
  std::vector<uint32_t> grouped_, together_, other_;
  std::span<uint32_t> mine_;   // the keys sorted here
  SortedKeys sorted_;          // for comparison
};

int program(int argc, char** argv) {
  Options options;
  CommandLine line("kernel_ssort - sample sort in Split-C: start it by unet-run -n P -- kernel_ssort",
                   "By default each message is a store of two keys, and the cost of a small message decides. With --bulk a rank puts the\n"
                   "keys of each other rank together first, and sends one message to each. All ranks tell each other how many keys\n"
                   "they will send (all_bulk_gather), so each knows where its keys belong, and a store needs no answer; all_store_sync()\n"
                   "ends it.");
  line.number("--keys", options.keys, 1, kSortKeysMax, "32-bit keys to sort, of all ranks");
  line.number("--samples", options.samples, 1, 1u << 16, "keys that each rank gives to choose splitters from");
  line.flag("--bulk", options.bulk, "one message from each rank to each other");
  const Parsed parsed = parse(line, argc, argv);
  if (!parsed.options) return parsed.status;

  SampleSort sort(options, parsed.options->seed);
  Measurement result{.kernel = options.bulk ? "ssort bulk" : "ssort small", .size = std::to_string(options.keys) + " keys"};
  result.operations = static_cast<double>(options.keys);
  result.operation = "keys";
  const Work work{.begin = [&] { sort.begin(); },
                  .run = [&](TimeSplit& time) { sort.run(time); },
                  .count_wrong = [&] { return sort.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
