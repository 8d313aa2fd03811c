// lock.h - a lock that all ranks may take, one after the other in the order of asking; part of Split-C's public API.
//
//   Lock lock = Lock::all_make(0);                  // collective; the queue's end is at rank 0
//   { std::lock_guard held(lock); write(x, read(x) + 1); }
//
// A queue (Mellor-Crummey and Scott 1991): who waits looks at its own memory, and handing over is one store or message. What a holder has
// put or written is there for the next one. Not taken twice by one rank, and not by what runs at an owner (atomic()).
#pragma once

#include <cstdint>
#include <utility>

#include "am/splitc/global.h"

namespace unet::splitc {

class Lock {
 public:
  // There is one of it at each rank: a copy would not know whether this rank has it. What it was moved from is none.
  Lock(Lock&& other) noexcept
      : offset_(std::exchange(other.offset_, 0)), owner_(other.owner_), held_(std::exchange(other.held_, false)) {}
  Lock& operator=(Lock&& other) noexcept {
    offset_ = std::exchange(other.offset_, 0);
    owner_ = other.owner_;
    held_ = std::exchange(other.held_, false);
    return *this;
  }

  // Collective: a lock that is free, of which rank `owner` keeps the end of the queue.
  static Lock all_make(Rank owner = 0);
  // Collective: nobody has it or waits for it.
  void all_free();

  void lock();
  bool try_lock();
  void unlock();

 private:
  explicit Lock(uint64_t offset, Rank owner) noexcept : offset_(offset), owner_(owner) {}
  Address tail() const noexcept { return Address(owner_, offset_); }                       // rank + 1 of the last in the queue; 0: free
  Address next_of(Rank rank) const noexcept { return Address(rank, offset_ + 8); }         // rank + 1 of who comes after it; 0: nobody yet
  Address turn_of(Rank rank) const noexcept { return Address(rank, offset_ + 16); }        // 1: it is its turn

  uint64_t offset_;
  Rank owner_;
  bool held_ = false;  // by this rank
};

}  // namespace unet::splitc
