// chain.h - the loop of the workload `word_read`: words that side B has just written, each of which says where the next one is.
#pragma once

#include "apps/bench/workloads/messages.h"

namespace unet::bench {

constexpr uint64_t kAllDone = ~uint64_t{0};  // in control.sent: side A needs nothing more of side B in this slice

constexpr uint32_t kChainStep = 32;  // words between two of a chain: four lines, so that no prefetcher brings them in pairs
constexpr size_t kChainWords = size_t{kChainMax} * kChainStep;

// A cycle through all words, in an order that no prefetcher recognises.
constexpr uint64_t next_in_chain(uint64_t place) { return (place * 29 + 17) % kChainMax; }

// Reads the clock after all earlier reads are complete: a processor fetches the next words of a chain long before they are looked at.
inline uint64_t cycles_after_reads() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
#endif
  return cycles();
}

// Per batch, side B writes slice.batch words (at most kChainMax) into its own memory, then side A reads them, one after the other, as it
// learns from each where the next is. Each sample is one batch; nothing else is in it. A link has uint64_t read(place) for side A,
// write(place, word) for side B, and poll(), while either waits for the other. Side A ends with kAllDone, also when it is stopped: until
// then side B serves it.
template <typename Link>
class Chains {
 public:
  Chains(Link& link, const Slice& slice, RunContext& context)
      : link_(link), slice_(slice), context_(context), warm_((slice.warm_up + slice.batch - 1) / slice.batch),
        all_(warm_ + slice.iterations / slice.batch) {}

  Outcome run() {
    if (context_.side == Side::b) {
      for (uint64_t round = 1; round <= all_; ++round) write(round);
      return {};
    }
    const Outcome outcome = read_all();
    context_.control.sent.store(kAllDone, std::memory_order_release);
    return outcome;
  }

 private:
  static constexpr uint32_t kPlaceBits = 8;  // of a word: the next one's place; above it the round
  static_assert(kChainMax <= 1u << kPlaceBits);

  void write(uint64_t round) {
    for (uint64_t i = 0, place = 0; i < slice_.batch; ++i, place = next_in_chain(place)) {
      link_.write(place, round << kPlaceBits | next_in_chain(place));
    }
    context_.control.progress.store(round, std::memory_order_release);
    while (context_.control.sent.load(std::memory_order_acquire) < round) {
      link_.poll();
      context_.stop.yield_if_alone();
    }
  }

  Outcome read_all() {
    uint64_t start = cycles();
    for (uint64_t round = 1; round <= all_; ++round) {
      const auto written = [&] {
        link_.poll();
        return context_.control.progress.load(std::memory_order_acquire) >= round;
      };
      if (!spin_until(context_.stop, written)) return {};
      if (round == warm_ + 1) start = cycles();
      const uint64_t before = cycles_after_reads();
      uint64_t word = 0;
      for (uint32_t i = 0; i < slice_.batch; ++i) word = link_.read(word % (1u << kPlaceBits));
      const uint64_t taken = cycles_after_reads() - before;
      if (word >> kPlaceBits != round) {
        context_.control.fail("a word was read as it was before it was written");
        return {};
      }
      if (round > warm_) context_.samples.push_back(taken);
      context_.control.sent.store(round, std::memory_order_release);
    }
    return {cycles() - start, slice_.iterations};
  }

  Link& link_;
  const Slice& slice_;
  RunContext& context_;
  const uint64_t warm_, all_;
};

}  // namespace unet::bench
