// absence.h - for how long nobody has looked for what arrives; used by Endpoint, and by whoever simulates one.
//
// On a machine with fewer cores than threads a packet lies for milliseconds before anybody takes it, and what is measured then says nothing
// of the wire. A thread loses its core anywhere: between two polls, but also while it handles what one of them has found, or sends. What
// was there already when it went on is found only later, behind the rest. So every long time between two looks at the clock counts, until
// there is nothing left that can have arrived meanwhile.
#pragma once

#include "unet/base/time.h"

namespace unet::am {

class Absence {
 public:
  // A packet was found at `now`.
  void found(Nanoseconds now) noexcept {
    const Nanoseconds gap = now - looked_at_;
    looked_at_ = now;
    if (gap >= kLong) time_ += gap;
  }
  // Nothing was found any more. The time since the last look still counts: something may have come after it was seen to be empty.
  void found_nothing(Nanoseconds now) noexcept {
    const Nanoseconds gap = now - looked_at_;
    looked_at_ = now;
    time_ = gap >= kLong ? gap : 0;
  }
  // For how long what has just been found may have lain there unseen, at most.
  Nanoseconds time() const noexcept { return time_; }

 private:
  // Longer than it takes to handle a packet. What is shorter is work of ours that a window may well follow.
  static constexpr Nanoseconds kLong = 20 * kMicrosecond;
  Nanoseconds looked_at_ = 0;
  Nanoseconds time_ = 0;
};

}  // namespace unet::am
