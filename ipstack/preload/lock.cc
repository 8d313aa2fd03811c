// lock.cc - waiting for the lock, cancellation, and the end.
#include "ipstack/preload/lock.h"

#include <sched.h>

namespace unet::preload {

void Lock::wait() noexcept {
  wanting_.fetch_add(1, std::memory_order_relaxed);
  mutex_.lock();
  wanting_.fetch_sub(1, std::memory_order_relaxed);
}

void Lock::yield() noexcept {
  mutex_.unlock();
  ::sched_yield();
  mutex_.lock();
  begin();
}

void Lock::halt() noexcept {
  mutex_.unlock();
  for (;;) ::pause();
}

void Lock::disable_cancellation() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_); }

void Lock::restore_cancellation() noexcept { ::pthread_setcancelstate(std::exchange(cancel_state_, kUnchanged), nullptr); }

void Lock::begin_process() noexcept {
  process_ = ::getpid();
  wanting_ = 0;
}

void Lock::halt_others() noexcept {
  end_ = End::halts_others;
  work_at_end();
}

void Lock::keep() noexcept {
  end_ = End::kept;
  if (signals_deferred) let_signals_in();
}

}  // namespace unet::preload
