// domain_lock.h - the lock of a domain, which everything that threads may call takes; used by all objects of a domain.
#pragma once

#include <mutex>

namespace unet::fabric {

class DomainLock {
 public:
  // With `needed` false (FI_THREAD_DOMAIN) the program serializes its calls, and the lock costs nothing until need().
  explicit DomainLock(bool needed) noexcept : needed_(needed) {}
  void lock() noexcept {
    if (needed_) mutex_.lock();
  }
  void unlock() noexcept {
    if (needed_) mutex_.unlock();
  }

  bool is_needed() const noexcept { return needed_; }
  // Another thread will take the lock from now on. Call it with the lock: unlock() then releases the mutex.
  void need() noexcept {
    if (needed_) return;
    mutex_.lock();
    needed_ = true;
  }
  // For fork(), which needs the mutex free in the child whether it is in use or not.
  std::mutex& mutex() noexcept { return mutex_; }

 private:
  bool needed_;
  std::mutex mutex_;
};
using Locked = std::lock_guard<DomainLock>;

}  // namespace unet::fabric
