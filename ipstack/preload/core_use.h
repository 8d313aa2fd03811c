// core_use.h - how long threads spin and when they yield the core; used by runtime_wait.cc.
#pragma once

#include <algorithm>
#include <utility>

#include "unet/base/time.h"

namespace unet::preload {

// How long a thread polls before it sleeps. The time becomes shorter while polling finds nothing.
class SpinTime {
 public:
  explicit SpinTime(Nanoseconds most) noexcept : most_(most), now_(most) {}
  Nanoseconds now() const noexcept { return now_; }
  void note_found() noexcept { now_ = most_; }
  void note_sleep(Nanoseconds slept) noexcept {
    now_ = slept < kWorthSpinning ? most_ : slept > kLongSleep ? 0 : std::max(std::min(kLeast, most_), now_ / 2);
  }

 private:
  static constexpr Nanoseconds kLeast = 2 * kMicrosecond;
  static constexpr Nanoseconds kWorthSpinning = 60 * kMicrosecond;  // after a sleep this short the next spin is worth its time
  static constexpr Nanoseconds kLongSleep = 10 * kMillisecond;      // the next wait begins with sleep

  const Nanoseconds most_;
  Nanoseconds now_;
};

constexpr Nanoseconds kYieldEvery = 5 * kMicrosecond;

// Non-blocking calls that find nothing, again and again, yield the core: the awaited peer may need it.
class MissPace {
 public:
  void note_found() noexcept { missed_at_ = 0; }
  // True: yield, then note_yield().
  bool note_miss(Nanoseconds at) noexcept {
    if (at - std::exchange(missed_at_, at) > kAgain) since_ = at;
    return at - since_ >= kYieldEvery;
  }
  void note_yield(Nanoseconds at) noexcept { missed_at_ = since_ = at; }

 private:
  static constexpr Nanoseconds kAgain = 20 * kMicrosecond;

  Nanoseconds missed_at_ = 0, since_ = 0;
};

}  // namespace unet::preload
