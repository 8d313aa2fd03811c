// buffer_pool.cc - the private set of buffers, and the search for long runs when the free queue has none.
#include "unet/engine/buffer_pool.h"

#include <algorithm>
#include <bit>

namespace unet::engine {
namespace {

constexpr uint32_t kLiesMax = 64;      // false entries looked at for one message: the client's loop must not become ours
constexpr uint32_t kSearchWords = 64;  // 4,096 buffers searched for long runs at a time, for the same reason

}  // namespace

BufferPool::BufferPool(const FreeSlot* slots, uint32_t depth, uint32_t buffers)
    : queue_(slots, depth), buffers_(buffers), kept_bits_((buffers + 63) / 64) {}

bool BufferPool::keep(uint32_t buffer) noexcept {
  uint64_t& word = kept_bits_[buffer / 64];
  const uint64_t bit = uint64_t{1} << (buffer % 64);
  if ((word & bit) != 0) return false;
  word |= bit;
  ++kept_;
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

bool BufferPool::take_kept(uint32_t& buffer) noexcept {
  const auto words = static_cast<uint32_t>(kept_bits_.size());
  uint32_t word = cursor_ / 64;
  uint64_t bits = kept_bits_[word] & (~uint64_t{0} << (cursor_ % 64));
  for (uint32_t looked = 0; bits == 0; ++looked) {
    if (looked == words) return false;
    word = word + 1 == words ? 0 : word + 1;
    bits = kept_bits_[word];
  }
  buffer = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
  unkeep(buffer, 1);
  cursor_ = buffer + 1 >= buffers_ ? 0 : buffer + 1;
  return true;
}

bool BufferPool::take_one(uint32_t& buffer, uint32_t& lies) noexcept {
  if (kept_ != 0) return take_kept(buffer);
  for (uint32_t tries = 0; tries < kLiesMax && queue_.pop(buffer); ++tries) {
    if (buffer < buffers_) return true;
    ++lies;
  }
  return false;
}

BufferPool::Outcome BufferPool::take_slowly(uint32_t count, RunList& runs, uint32_t& lies) noexcept {
  for (uint32_t taken = 0; taken < count; ++taken) {
    uint32_t buffer;
    if (!take_one(buffer, lies)) {
      give_back(runs);
      runs.count = 0;
      return Outcome::none;
    }
    if (runs.append(buffer)) continue;
    // Too scattered in the order of the queue: look at all of it, and use the longest runs.
    keep(buffer);
    give_back(runs);
    runs.count = 0;
    for (uint32_t pops = 0; pops < buffers_ && queue_.pop(buffer); ++pops) {
      if (buffer < buffers_ && keep(buffer)) continue;
      if (++lies >= kLiesMax) break;
    }
    return take_longest(count, runs) ? Outcome::taken : Outcome::fragmented;
  }
  return Outcome::taken;
}

// Takes `count` buffers as at most kRunsMax runs out of a window of the private set; false if its longest runs do not do.
bool BufferPool::take_longest(uint32_t count, RunList& runs) noexcept {
  const auto words = static_cast<uint32_t>(kept_bits_.size());
  if (window_ >= words) window_ = 0;
  const uint32_t end = std::min((window_ + kSearchWords) * 64, buffers_);
  Run longest[kRunsMax];
  uint32_t found = 0;
  const auto kept = [this](uint32_t buffer) { return (kept_bits_[buffer / 64] >> (buffer % 64) & 1) != 0; };

  for (uint32_t buffer = window_ * 64; buffer < end;) {
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
  }
  window_ = end == buffers_ ? 0 : window_ + kSearchWords;

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
