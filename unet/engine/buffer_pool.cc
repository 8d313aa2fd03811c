// buffer_pool.cc - the private set of buffers, and the search for long runs in it.
#include "unet/engine/buffer_pool.h"

#include <algorithm>
#include <bit>

#include "unet/base/trust.h"
#include "unet/engine/kept.h"

namespace unet::engine {
namespace {

constexpr uint32_t kLiesMax = 64;      // false entries looked at for one message: the client's loop must not become ours
constexpr uint32_t kPopsMin = 64;      // entries of the free queue taken in any case, if there are
constexpr uint32_t kSearchWords = 64;  // 4,096 buffers searched for long runs at a time, for the same reason

}  // namespace

BufferPool::BufferPool(const FreeSlot* slots, uint32_t depth, uint32_t buffers, uint64_t* held, uint32_t* position)
    : queue_(slots, depth, *position), buffers_(buffers), kept_bits_(held, held + (buffers + 63) / 64), held_(held), position_(position) {
  if (buffers % 64 != 0) kept_bits_.back() &= (uint64_t{1} << (buffers % 64)) - 1;
  for (const uint64_t word : kept_bits_) kept_ += static_cast<uint32_t>(std::popcount(word));
}

bool BufferPool::keep(uint32_t buffer) noexcept {
  uint64_t& word = kept_bits_[buffer / 64];
  const uint64_t bit = uint64_t{1} << (buffer % 64);
  if (!checked((word & bit) == 0)) return false;
  word |= bit;
  ++kept_;
  first_ = std::min(first_, buffer / 64);
  return true;
}

void BufferPool::unkeep(uint32_t first, uint32_t count) noexcept {
  for (uint32_t buffer = first; buffer < first + count; ++buffer) kept_bits_[buffer / 64] &= ~(uint64_t{1} << (buffer % 64));
  kept_ -= count;
}

void BufferPool::give_back(const RunList& runs) noexcept {
  for (uint32_t i = 0; i < runs.count; ++i) {
    for (uint32_t buffer = runs.runs[i].first; buffer < uint32_t{runs.runs[i].first} + runs.runs[i].count; ++buffer) keep(buffer);
  }
}

// Moves entries of the free queue to the private set: `count` of them if there are, and a few more.
void BufferPool::fetch(uint32_t count, uint32_t& lies) noexcept {
  uint32_t buffer;
  for (uint32_t pops = 0; (pops < kPopsMin || kept_ < count) && queue_.pop(buffer); ++pops) {
    const bool good = checked(buffer < buffers_) && keep(buffer);
    if (good) [[likely]] hold(held_, buffer);
    KeptEndpoint::fence();
    *position_ = queue_.position();
    if (good) [[likely]] continue;
    if (++lies >= kLiesMax) return;
  }
}

void BufferPool::take_lowest(RunList& runs) noexcept {
  while (kept_bits_[first_] == 0) ++first_;
  uint64_t& word = kept_bits_[first_];
  runs.runs[0] = {static_cast<uint16_t>(first_ * 64 + static_cast<uint32_t>(std::countr_zero(word))), 1};
  runs.count = 1;
  word &= word - 1;
  --kept_;
}

// Takes `count` buffers as at most kRunsMax runs, of the lowest kSearchWords words or of others in rotation.
bool BufferPool::take_runs(uint32_t count, RunList& runs, uint32_t& lies) noexcept {
  while (kept_bits_[first_] == 0) ++first_;
  if (search(first_, count, runs)) return true;
  // Too scattered: look at all there is.
  const uint32_t had = kept_;
  if (lies < kLiesMax) fetch(buffers_, lies);
  if (kept_ != had && search(first_, count, runs)) return true;
  if (window_ >= kept_bits_.size()) window_ = 0;
  const uint32_t window = window_;
  window_ += kSearchWords;
  return window != first_ && search(window, count, runs);
}

bool BufferPool::search(uint32_t first_word, uint32_t count, RunList& runs) noexcept {
  const uint32_t end = std::min((first_word + kSearchWords) * 64, buffers_);
  Run longest[kRunsMax];
  uint32_t found = 0;
  const auto kept = [this](uint32_t buffer) { return (kept_bits_[buffer / 64] >> (buffer % 64) & 1) != 0; };

  for (uint32_t buffer = first_word * 64; buffer < end;) {
    if (!kept(buffer)) {
      buffer = kept_bits_[buffer / 64] >> (buffer % 64) == 0 ? (buffer / 64 + 1) * 64 : buffer + 1;
      continue;
    }
    const uint32_t first = buffer;
    while (buffer < end && kept(buffer) && buffer - first < count) ++buffer;
    Run run{static_cast<uint16_t>(first), static_cast<uint16_t>(buffer - first)};
    // Insertion into a short list that is sorted by length, longest first.
    for (uint32_t i = 0; i < kRunsMax; ++i) {
      if (i == found) {
        longest[found++] = run;
        break;
      }
      if (run.count > longest[i].count) std::swap(run, longest[i]);
    }
    if (longest[0].count == count) break;  // all of it in one piece
  }

  uint32_t have = 0;
  for (uint32_t i = 0; i < found; ++i) have += longest[i].count;
  if (have < count) return false;
  for (uint32_t i = 0; count != 0; ++i) {
    longest[i].count = static_cast<uint16_t>(std::min<uint32_t>(longest[i].count, count));
    count -= longest[i].count;
    unkeep(longest[i].first, longest[i].count);
    runs.runs[runs.count++] = longest[i];
  }
  return true;
}

}  // namespace unet::engine
