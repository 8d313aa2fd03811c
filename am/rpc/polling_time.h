// polling_time.h - how long a thread polls before it sleeps, from what its last waits have found; used by Client and Server.
//
// Where each side has a core, the answer comes while the caller polls. Where both share one, it comes only after the caller has slept, and
// polling delays it. A wait that ends soon after the thread slept is such a case; after a few of them the thread sleeps at once.
#pragma once

#include "am/endpoint.h"

namespace unet::rpc {

class PollingTime {
 public:
  static constexpr Nanoseconds kAdaptive = kNever;

  // kAdaptive, or the time for all waits.
  explicit PollingTime(Nanoseconds time) noexcept : fixed_(time) {}

  // Calls poll(), which returns the number of messages, for as long as that pays. Then calls sleep(), which returns false at its time-out.
  // Returns whether one of them has found something.
  template <typename Poll, typename Sleep>
  bool wait(const Poll& poll, const Sleep& sleep) {
    const bool brief = fixed_ == kAdaptive && hand_overs_ >= kFew && ++brief_ones_ % kProbeEvery != 0;
    const Nanoseconds most = fixed_ != kAdaptive ? fixed_ : brief ? 0 : kPolling;
    Nanoseconds start = 0;
    for (uint32_t empty = 0;; ++empty) {
      if (poll() != 0) {
        if (!brief) hand_overs_ = 0;
        return true;
      }
      if (empty % kPollsPerLook != 0) continue;
      const Nanoseconds now = monotonic_now();
      if (start == 0) start = now;
      if (now - start >= most) break;
    }
    start = monotonic_now();
    const bool found = sleep();
    if (found && monotonic_now() - start < kSoon) ++hand_overs_;
    return found;
  }

 private:
  static constexpr Nanoseconds kPolling = 20 * kMicrosecond;
  static constexpr Nanoseconds kSoon = 100 * kMicrosecond;  // a sleep that ends within this time was a hand-over
  static constexpr uint32_t kFew = 3, kProbeEvery = 64, kPollsPerLook = 32;

  Nanoseconds fixed_;
  uint32_t hand_overs_ = 0;   // in a row
  uint32_t brief_ones_ = 0;
};

}  // namespace unet::rpc
