// buffer_pool.cc - the private set of buffers, and the search for long runs in it.
#include "ni/engine/buffer_pool.h"

#include <algorithm>
#include <bit>

#include "ni/engine/engine_checkpoint.h"
#include "unet/base/trust.h"

namespace unet::engine {
namespace {

constexpr uint32_t kLiesMax = 64;      // false entries read for one message: bounds the engine's loop
constexpr uint32_t kPopsMin = 64;      // entries of the free queue taken at least, if present
constexpr uint32_t kPopsMax = 1024;    // most of these if a message needs more
constexpr uint32_t kSearchWords = 64;  // 4,096 buffers searched for long runs at a time, for the same reason
// Steps of a search: a word, or a run that is longer than those found before. A step takes a few nanoseconds.
constexpr uint32_t kNearSteps = 16;      // free for each message
constexpr uint32_t kStepsPerBuffer = 4;  // earned by each buffer that the client gives
constexpr uint32_t kStepsMax = 4 * kSearchWords;

}  // namespace

BufferPool::BufferPool(const FreeSlot* slots, uint32_t depth, uint32_t buffers, uint64_t* held, uint32_t* position)
    : queue_(slots, depth, *position), buffers_(buffers), free_bits_(held, held + (buffers + 63) / 64), held_(held), position_(position) {
  if (buffers % 64 != 0) free_bits_.back() &= (uint64_t{1} << (buffers % 64)) - 1;
  for (const uint64_t word : free_bits_) free_ += static_cast<uint32_t>(std::popcount(word));
}

bool BufferPool::add_free(uint32_t buffer) noexcept {
  uint64_t& word = free_bits_[buffer / 64];
  const uint64_t bit = uint64_t{1} << (buffer % 64);
  if (!checked((word & bit) == 0)) return false;
  word |= bit;
  ++free_;
  first_ = std::min(first_, buffer / 64);
  return true;
}

void BufferPool::remove_free(uint32_t first, uint32_t count) noexcept {
  for (uint32_t buffer = first; buffer < first + count; ++buffer) free_bits_[buffer / 64] &= ~(uint64_t{1} << (buffer % 64));
  free_ -= count;
}

void BufferPool::give_back(const RunList& runs) noexcept {
  for (uint32_t i = 0; i < runs.count; ++i) {
    for (uint32_t buffer = runs.runs[i].first; buffer < uint32_t{runs.runs[i].first} + runs.runs[i].count; ++buffer) add_free(buffer);
  }
}

// Moves entries of the free queue to the private set: `count` of them if there are, and a few more.
void BufferPool::fetch(uint32_t count, uint32_t& lies) noexcept {
  uint32_t buffer;
  for (uint32_t pops = 0; (pops < kPopsMin || (free_ < count && pops < kPopsMax)) && queue_.pop(buffer); ++pops) {
    const bool good = checked(buffer < buffers_) && add_free(buffer);
    if (good) [[likely]] {
      mark_held(held_, buffer);
      search_steps_ = std::min(search_steps_ + kStepsPerBuffer, kStepsMax);
    }
    EndpointCheckpoint::fence();
    *position_ = queue_.position();
    if (good) [[likely]] continue;
    if (++lies >= kLiesMax) return;
  }
}

void BufferPool::take_lowest(RunList& runs) noexcept {
  while (free_bits_[first_] == 0) ++first_;
  uint64_t& word = free_bits_[first_];
  runs.runs[0] = {static_cast<uint16_t>(first_ * 64 + static_cast<uint32_t>(std::countr_zero(word))), 1};
  runs.count = 1;
  word &= word - 1;
  --free_;
}

// Takes `count` buffers as at most kRunsMax runs, of the lowest kSearchWords words or of others in rotation.
bool BufferPool::take_runs(uint32_t count, RunList& runs, uint32_t& lies) noexcept {
  while (free_bits_[first_] == 0) ++first_;
  uint32_t near = kNearSteps;
  if (search(first_, count, near, runs)) return true;
  // Too scattered: takes the whole free queue.
  const uint32_t had = free_;
  if (lies < kLiesMax) fetch(buffers_, lies);
  if (free_ != had && search(first_, count, near, runs)) return true;
  if (search_steps_ == 0) return false;
  if (window_ >= free_bits_.size()) window_ = 0;
  const uint32_t window = window_;
  window_ += kSearchWords;
  return window != first_ && search(window, count, near, runs);
}

namespace {

// The `most` longest runs found, longest first, and no more than a message may have.
class LongestRuns {
 public:
  explicit LongestRuns(uint32_t most) noexcept : most_(std::min(most, kRunsMax)) {}

  void add(uint32_t first, uint32_t count) noexcept {
    if (count <= least()) return;
    if (found_ == most_) buffers_ -= runs_[--found_].count;
    uint32_t i = found_++;
    for (; i != 0 && runs_[i - 1].count < count; --i) runs_[i] = runs_[i - 1];
    runs_[i] = {static_cast<uint16_t>(first), static_cast<uint16_t>(count)};
    buffers_ += count;
  }
  // A run must be longer to be stored.
  uint32_t least() const noexcept { return found_ == most_ ? runs_[found_ - 1].count : 0; }
  uint32_t buffers() const noexcept { return buffers_; }
  const Run& operator[](uint32_t i) const noexcept { return runs_[i]; }

 private:
  uint32_t most_;
  Run runs_[kRunsMax];
  uint32_t found_ = 0;
  uint32_t buffers_ = 0;  // of all runs
};

// The bits from which on more than `more` bits in a row are set.
uint64_t longer_than(uint64_t bits, uint32_t more) noexcept {
  if (more >= 64) return 0;
  for (uint32_t sure = 1; more != 0;) {  // each bit says that so many are set from there on
    const uint32_t step = std::min(sure, more);
    bits &= bits >> step;
    sure += step;
    more -= step;
  }
  return bits;
}

// `count` < 64 bits from `first` on.
constexpr uint64_t mask(uint32_t first, uint32_t count) noexcept { return ((uint64_t{1} << count) - 1) << first; }

}  // namespace

// `near` steps are free for the message; the client has earned others by giving buffers.
bool BufferPool::search(uint32_t first_word, uint32_t count, uint32_t& near, RunList& runs) noexcept {
  const auto end = std::min(first_word + kSearchWords, static_cast<uint32_t>(free_bits_.size()));
  LongestRuns longest(count);
  const auto step = [&] {
    if (near != 0) --near;
    else if (search_steps_ != 0 && longest.buffers() < count) --search_steps_;
    else return false;
    ++searched_;
    return true;
  };
  uint32_t first = 0, length = 0;  // the run under way, which may go on in the next word
  for (uint32_t word = first_word; word < end && length < count && step(); ++word) {
    uint64_t bits = free_bits_[word];
    if (length != 0) {
      const auto ones = static_cast<uint32_t>(std::countr_one(bits));
      length += ones;
      if (ones == 64 || length >= count) continue;
      longest.add(first, length);
      length = 0;
      bits &= ~mask(0, ones);
    }
    const auto last = static_cast<uint32_t>(std::countl_one(bits));
    if (last != 64) {
      bits &= ~uint64_t{0} >> last;
      for (uint64_t longer; length < count && (longer = longer_than(bits, longest.least())) != 0 && step();) {
        const auto at = static_cast<uint32_t>(std::countr_zero(longer));
        const auto ones = static_cast<uint32_t>(std::countr_one(bits >> at));
        bits &= ~mask(at, ones);
        if (ones < count) longest.add(word * 64 + at, ones);
        else first = word * 64 + at, length = ones;
      }
    }
    if (length < count && last != 0) first = word * 64 + 64 - last, length = last;
  }
  if (length >= count) {  // all of it in one piece
    longest = LongestRuns(count);
    length = count;
  }
  if (length != 0) longest.add(first, std::min(length, count));
  if (longest.buffers() < count) return false;
  for (uint32_t i = 0; count != 0; ++i) {
    const Run run{longest[i].first, static_cast<uint16_t>(std::min<uint32_t>(longest[i].count, count))};
    count -= run.count;
    remove_free(run.first, run.count);
    runs.runs[runs.count++] = run;
  }
  return true;
}

}  // namespace unet::engine
