// hand_over.h - guesses whether the peer shares this core, so that a wait should begin with a yield; used by Endpoint.
//
// A peer on this core answers only when it gets the core. A yield hands it over at once, without a sleep and a wake-up. A wrong guess costs
// much more: if a third program wants the core, a yield takes milliseconds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "unet/base/time.h"

namespace unet {

class HandOver {
 public:
  // Whether the next wait should yield before it polls.
  bool is_due() const noexcept { return left_ != 0; }
  // A wait has yielded for `took`, until `now`. `at_once`: it did not poll before. `arrived`: a message came meanwhile.
  void yielded(bool at_once, bool arrived, Nanoseconds took, Nanoseconds now) noexcept {
    if (arrived && took >= kSwitched && took < kLongYield && (at_once || now >= next_guess_at_)) {
      left_ = at_once ? left_ - 1 : kWaits;
      if (left_ == 0) pause_ = 0;
    } else if (at_once) {
      left_ = 0;
      if (took >= kLongYield) pause_ = std::clamp(2 * pause_, kPause, kPauseMax);
      next_guess_at_ = now + (took >= kLongYield ? pause_ : kPause);
    }
  }
  // A message has ended a sleep of `slept` at `now`.
  void woken(Nanoseconds slept, Nanoseconds now) noexcept {
    if (slept < kSoon && now >= next_guess_at_) left_ = kWaits;
  }

 private:
  static constexpr uint32_t kWaits = 64;  // then one wait polls first: the peer may have moved
  static constexpr Nanoseconds kSwitched = kMicrosecond / 2;  // a yield that took as long let another thread run
  static constexpr Nanoseconds kSoon = 20 * kMicrosecond;     // after a shorter sleep the peer may be on this core
  // After a longer yield a third program had the core. A peer that polls before it answers may keep it for 20 us (am/rpc/polling_time.h).
  static constexpr Nanoseconds kLongYield = 50 * kMicrosecond;
  // Pause after a wrong guess. It is doubled each time that a third program had the core, until kWaits guesses in a row are right.
  static constexpr Nanoseconds kPause = 50 * kMicrosecond, kPauseMax = kSecond;

  uint32_t left_ = 0;              // waits to come that yield first
  Nanoseconds pause_ = 0;          // the last one after a long yield
  Nanoseconds next_guess_at_ = 0;  // end of that pause
};

}  // namespace unet
