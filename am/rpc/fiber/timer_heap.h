// timer_heap.h - the fibers of a worker that wait for a time, the earliest first; used by worker.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "am/rpc/fiber/context.h"
#include "unet/base/time.h"

namespace unet::fiber {

// A binary heap. A fiber knows its place, so an early end of a wait removes it. Fibers with the same deadline leave in the order in which
// they came.
class TimerHeap {
 public:
  // kNever: there is none.
  Nanoseconds earliest() const noexcept { return entries_.empty() ? kNever : entries_.front().deadline; }

  void add(Fiber& fiber, Nanoseconds deadline) {
    entries_.push_back({deadline, ++order_, &fiber});
    rise(entries_.size() - 1);
  }
  void remove(Fiber& fiber) noexcept {
    const size_t at = fiber.timer_;
    fiber.timer_ = kNoTimer;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (at == entries_.size()) return;
    put(at, last);
    rise(at);
    sink(last.fiber->timer_);
  }
  // Removes the earliest fiber if its deadline is not after `now`; otherwise nullptr.
  Fiber* take(Nanoseconds now) noexcept {
    if (earliest() > now) return nullptr;
    Fiber* const fiber = entries_.front().fiber;
    remove(*fiber);
    return fiber;
  }

 private:
  struct Entry {
    Nanoseconds deadline;
    uint64_t order;
    Fiber* fiber;
    bool before(const Entry& other) const noexcept {
      return deadline != other.deadline ? deadline < other.deadline : order < other.order;
    }
  };

  void put(size_t at, const Entry& entry) noexcept {
    entries_[at] = entry;
    entry.fiber->timer_ = static_cast<uint32_t>(at);
  }
  void rise(size_t at) noexcept {
    const Entry entry = entries_[at];
    for (; at != 0 && entry.before(entries_[(at - 1) / 2]); at = (at - 1) / 2) put(at, entries_[(at - 1) / 2]);
    put(at, entry);
  }
  void sink(size_t at) noexcept {
    const Entry entry = entries_[at];
    for (size_t child = 2 * at + 1; child < entries_.size(); child = 2 * at + 1) {
      if (child + 1 < entries_.size() && entries_[child + 1].before(entries_[child])) ++child;
      if (!entries_[child].before(entry)) break;
      put(at, entries_[child]);
      at = child;
    }
    put(at, entry);
  }

  std::vector<Entry> entries_;
  uint64_t order_ = 0;
};

}  // namespace unet::fiber
