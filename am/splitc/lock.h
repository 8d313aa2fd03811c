// lock.h - a lock for all ranks, granted in the order of asking; part of Split-C's public API.
//
//   Lock lock = Lock::all_make(0);                  // collective; the queue's end is at rank 0
//   { std::lock_guard held(lock); write(x, read(x) + 1); }
//
// A queue lock (Mellor-Crummey and Scott 1991): a waiting rank looks at its own memory, and handing over is one store or message. The next
// holder sees what a holder has put or written. A rank may not take it twice, and a function that atomic() runs may not take it.
#pragma once

#include <cstdint>
#include <utility>

#include "am/splitc/global.h"

namespace unet::splitc {

class Lock {
 public:
  // Each rank has one object for the lock. It cannot be copied: a copy would not know whether this rank holds the lock. Moving empties it.
  Lock(Lock&& other) noexcept
      : offset_(std::exchange(other.offset_, 0)), owner_(other.owner_), held_(std::exchange(other.held_, false)) {}
  Lock& operator=(Lock&& other) noexcept {
    offset_ = std::exchange(other.offset_, 0);
    owner_ = other.owner_;
    held_ = std::exchange(other.held_, false);
    return *this;
  }

  // Collective: makes a free lock. Rank `owner` stores the end of its queue.
  static Lock all_make(Rank owner = 0);
  // Collective: frees the lock. No rank may hold it or wait for it.
  void all_free();

  void lock();
  bool try_lock();
  void unlock();

 private:
  explicit Lock(uint64_t offset, Rank owner) noexcept : offset_(offset), owner_(owner) {}
  Address tail() const noexcept { return Address(owner_, offset_); }                       // rank + 1 of the last in the queue; 0: free
  Address next_of(Rank rank) const noexcept { return Address(rank, offset_ + 8); }         // rank + 1 of the next in the queue; 0: none yet
  Address turn_of(Rank rank) const noexcept { return Address(rank, offset_ + 16); }        // 1: this rank holds the lock

  uint64_t offset_;
  Rank owner_;
  bool held_ = false;  // by this rank
};

}  // namespace unet::splitc
