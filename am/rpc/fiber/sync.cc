// sync.cc - the slow paths of mutexes, conditions and events: the lists of fibers that wait.
#include "am/rpc/fiber/sync.h"

#include <sched.h>

#include <mutex>

namespace unet::fiber {

// ---- the list

void WaitList::lock_slowly() noexcept {
  for (uint32_t spins = 1; locked_.exchange(true, std::memory_order_acquire); ++spins) {
    while (locked_.load(std::memory_order_relaxed)) {
      if (spins++ % 64 == 0) ::sched_yield();  // the holder may need this core
      spin_pause();
    }
  }
}

void WaitList::add(Place& place) noexcept {
  place.before_ = last_;
  (last_ == nullptr ? first_ : last_->next_) = &place;
  last_ = &place;
}

void WaitList::remove(Place& place) noexcept {
  (place.before_ == nullptr ? first_ : place.before_->next_) = place.next_;
  (place.next_ == nullptr ? last_ : place.next_->before_) = place.before_;
}

// The fiber takes the lock before it leaves its place, so it still lives when it is unparked.
bool WaitList::wake_first() noexcept {
  if (first_ == nullptr) return false;
  Place& place = *first_;
  remove(place);
  place.woken_ = true;
  unpark(*place.fiber_);
  return true;
}

bool WaitList::wait(Place& place, Nanoseconds deadline) {
  for (;;) {
    const bool in_time = park_until(deadline);
    const std::lock_guard held(*this);
    if (place.woken_) return true;
    if (in_time) continue;  // an unpark() of another origin
    remove(place);
    return false;
  }
}

// ---- mutex

bool Mutex::lock_slowly(Nanoseconds deadline) {
  WaitList::Place place;
  {
    const std::lock_guard held(waiters_);
    // Without the lock of the list, a mutex changes only between free and locked.
    for (uint32_t state = kLocked; !state_.compare_exchange_strong(state, kWaitedFor, std::memory_order_relaxed, std::memory_order_relaxed);
         state = kLocked) {
      if (state == kWaitedFor) break;
      if (try_lock()) return true;
    }
    waiters_.add(place);
  }
  return waiters_.wait(place, deadline);
}

// A fiber waits, or has waited until its deadline came.
void Mutex::pass_on() noexcept {
  const std::lock_guard held(waiters_);
  if (!waiters_.wake_first()) {
    state_.store(kFree, std::memory_order_release);
  } else if (waiters_.empty()) {
    state_.store(kLocked, std::memory_order_relaxed);
  }
}

// ---- condition

bool Condition::wait_until(Mutex& mutex, Nanoseconds deadline) {
  WaitList::Place place;
  {
    const std::lock_guard held(waiters_);
    waiters_.add(place);
  }
  mutex.unlock();
  const bool in_time = waiters_.wait(place, deadline);
  mutex.lock();
  return in_time;
}

void Condition::notify_one() noexcept {
  const std::lock_guard held(waiters_);
  waiters_.wake_first();
}

void Condition::notify_all() noexcept {
  const std::lock_guard held(waiters_);
  while (waiters_.wake_first()) {
  }
}

// ---- event

void Event::set() noexcept {
  const std::lock_guard held(waiters_);
  set_.store(true, std::memory_order_release);
  while (waiters_.wake_first()) {
  }
}

bool Event::wait_until(Nanoseconds deadline) {
  if (is_set()) return true;
  WaitList::Place place;
  {
    const std::lock_guard held(waiters_);
    if (is_set()) return true;
    waiters_.add(place);
  }
  return waiters_.wait(place, deadline);
}

}  // namespace unet::fiber
