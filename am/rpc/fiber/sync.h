// sync.h - mutex, condition and event for fibers; part of the C++ API of fiber.h.
//
// Waiters are served in the order in which they came. A mutex or condition belongs to fibers of one scheduler. An event can be set by any
// thread. No call here makes a system call, except to wake a thread that sleeps.
#pragma once

#include <atomic>

#include "am/rpc/fiber/fiber.h"

namespace unet::fiber {

// Fibers that wait for something, the oldest first, and a spin lock around them. With one kernel thread nothing can come between, and the
// lock does nothing, unless the list is `open` to threads of other kinds.
class WaitList {
 public:
  explicit WaitList(bool open = false) noexcept : open_(open) {}
  WaitList(const WaitList&) = delete;
  WaitList& operator=(const WaitList&) = delete;

  void lock() noexcept {
    if (is_shared()) lock_slowly();
  }
  void unlock() noexcept {
    if (is_shared()) locked_.store(false, std::memory_order_release);
  }

  // A place in the list, on the stack of the fiber that waits.
  class Place {
   public:
    Place() noexcept : fiber_(current()) {}

   private:
    friend class WaitList;
    Fiber* fiber_;
    Place* next_ = nullptr;
    Place* before_ = nullptr;
    bool woken_ = false;
  };
  // The caller holds the lock.
  bool empty() const noexcept { return first_ == nullptr; }
  void add(Place& place) noexcept;
  bool wake_first() noexcept;
  // Waits until the place was woken. Returns false if the deadline came first; the place is then out of the list. The caller does not hold
  // the lock.
  bool wait(Place& place, Nanoseconds deadline = kNever);

 private:
  bool is_shared() const noexcept { return open_ || !Worker::here().alone(); }
  void lock_slowly() noexcept;
  void remove(Place& place) noexcept;

  const bool open_;
  std::atomic<bool> locked_{false};
  Place* first_ = nullptr;
  Place* last_ = nullptr;
};

// A lock that a fiber may hold while it waits. unlock() gives it to the first waiter, so none is overtaken.
class Mutex {
 public:
  Mutex() noexcept = default;

  void lock() {
    if (!try_lock()) [[unlikely]] lock_slowly();
  }
  bool try_lock() noexcept {
    uint32_t state = kFree;
    if (!Worker::here().alone()) {
      return state_.compare_exchange_strong(state, kLocked, std::memory_order_acquire, std::memory_order_relaxed);
    }
    if (state_.load(std::memory_order_relaxed) != kFree) return false;
    state_.store(kLocked, std::memory_order_relaxed);
    return true;
  }
  // Returns false if the deadline came first.
  bool try_lock_until(Nanoseconds deadline) { return try_lock() || lock_slowly(deadline); }
  void unlock() noexcept {
    uint32_t state = kLocked;
    if (!Worker::here().alone()) {
      if (state_.compare_exchange_strong(state, kFree, std::memory_order_release, std::memory_order_relaxed)) [[likely]] return;
    } else if (state_.load(std::memory_order_relaxed) == kLocked) [[likely]] {
      return state_.store(kFree, std::memory_order_relaxed);
    }
    pass_on();
  }

 private:
  static constexpr uint32_t kFree = 0, kLocked = 1, kWaitedFor = 2;

  bool lock_slowly(Nanoseconds deadline = kNever);
  void pass_on() noexcept;

  std::atomic<uint32_t> state_{kFree};
  WaitList waiters_;
};

// Waits for a change of what a mutex protects. A wait may end without a notify, so check in a loop.
class Condition {
 public:
  // The caller holds the mutex, before and after.
  void wait(Mutex& mutex) { wait_until(mutex, kNever); }
  // Returns false if the deadline came first.
  bool wait_until(Mutex& mutex, Nanoseconds deadline);
  void notify_one() noexcept;
  void notify_all() noexcept;

 private:
  WaitList waiters_;
};

// A flag that fibers wait for. Once set it stays so until reset(). It must outlive each call of set().
class Event {
 public:
  // Any thread may call this.
  void set() noexcept;
  void reset() noexcept { set_.store(false, std::memory_order_relaxed); }
  bool is_set() const noexcept { return set_.load(std::memory_order_acquire); }
  void wait() { wait_until(kNever); }
  // Returns false if the deadline came first.
  bool wait_until(Nanoseconds deadline);

 private:
  std::atomic<bool> set_{false};
  WaitList waiters_{true};
};

}  // namespace unet::fiber
