// kernel_pace.h - how often a wait that has something of ours to tell asks for the kernel's part, too: each time would be a system call,
// which mostly says that there is nothing. Used by poll(), select() and epoll.
#pragma once

#include <atomic>
#include <cstdint>

#include "unet/base/time.h"

namespace unet::preload {

class KernelPace {
 public:
  // A call of this program's has ended that may have made a descriptor of the kernel's ready: what it has done itself, it expects to be
  // told.
  static void note_call() noexcept { calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

  // `what`: of which descriptors, if they may be others than the last time. A change by another process may be reported up to kEvery late.
  bool is_due(Nanoseconds at, uint32_t what = 0) const noexcept {
    return had_ || at - at_ >= kEvery || what != what_ || calls_ != calls.load(std::memory_order_relaxed);
  }
  // The kernel has something, as is known otherwise.
  void expect() noexcept { had_ = true; }
  // Asked; `had`: there was something, which may be still there.
  void note(Nanoseconds at, bool had, uint32_t what = 0) noexcept {
    at_ = at;
    had_ = had;
    what_ = what;
    calls_ = calls.load(std::memory_order_relaxed);
  }

 private:
  static constexpr Nanoseconds kEvery = 10 * kMicrosecond;
  alignas(64) static inline std::atomic<uint32_t> calls{0};  // any thread's

  Nanoseconds at_ = 0;
  bool had_ = false;
  uint32_t what_ = 0, calls_ = 0;
};

}  // namespace unet::preload
