// sleep_pace.h - detects a thread that sleeps often: a heavy_fence() before each sleep then costs more than fences of its peers; used by
// endpoints and the engine.
#pragma once

#include <algorithm>
#include <cstdint>

#include "unet/base/time.h"

namespace unet {

class SleepPace {
 public:
  // Call this before each sleep.
  void begin_sleep(Nanoseconds now) noexcept {
    short_sleeps_ = now - slept_at_ < kShort ? std::min(short_sleeps_ + 1, kInARow) : 0;
    slept_at_ = now;
  }
  // Whether the last kInARow sleeps began within kShort of each other, and the last one began within kShort of `now`.
  bool is_often(Nanoseconds now) const noexcept { return short_sleeps_ == kInARow && now - slept_at_ < kShort; }

 private:
  static constexpr Nanoseconds kShort = kMillisecond;
  static constexpr uint32_t kInARow = 8;

  Nanoseconds slept_at_ = 0;
  uint32_t short_sleeps_ = 0;
};

}  // namespace unet
