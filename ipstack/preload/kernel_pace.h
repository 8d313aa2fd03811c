// kernel_pace.h - how often poll(), select() and epoll ask the kernel while the stack has events: to ask is a system call, and mostly the
// kernel has none.
#pragma once

#include <atomic>
#include <cstdint>

#include "unet/base/time.h"

namespace unet::preload {

class KernelPace {
 public:
  // A call of the program has ended that may have made a kernel descriptor ready. The program expects to see its effect at once.
  static void note_call() noexcept { calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

  // Whether to ask now. `what`: a hash of the descriptors, if these may change. A change by another process may be reported kEvery late.
  bool is_due(Nanoseconds at, uint32_t what = 0) const noexcept {
    return had_ || at - at_ >= kEvery || what != what_ || calls_ != calls.load(std::memory_order_relaxed);
  }
  // The kernel is known to have an event.
  void expect() noexcept { had_ = true; }
  // The kernel was asked. `had`: it had an event, and may have it still.
  void note(Nanoseconds at, bool had, uint32_t what = 0) noexcept {
    at_ = at;
    had_ = had;
    what_ = what;
    calls_ = calls.load(std::memory_order_relaxed);
  }

 private:
  static constexpr Nanoseconds kEvery = 10 * kMicrosecond;
  alignas(64) static inline std::atomic<uint32_t> calls{0};  // of all threads

  Nanoseconds at_ = 0;
  bool had_ = false;
  uint32_t what_ = 0, calls_ = 0;
};

}  // namespace unet::preload
