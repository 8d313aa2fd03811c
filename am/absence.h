// absence.h - for how long nobody has looked for what arrives; used by Endpoint, and by whoever simulates one.
//
// On a machine with fewer cores than threads a packet lies for milliseconds before anybody takes it, and what is measured then says nothing
// of the wire. A thread loses its core anywhere: between two polls, but also while it handles what one of them has found, or sends. What
// was there already when it went on is found only later, behind the rest. So the longest time between two looks counts until nothing is
// left that can have arrived meanwhile: a poll found nothing, or as much was found since as a receive queue holds. It is the longest and
// not the sum, so that a receiver that is slower than the wire, and takes long for each packet, has to be sent less nevertheless.
#pragma once

#include <algorithm>
#include <utility>

#include "am/packet.h"
#include "unet/base/time.h"

namespace unet::am {

class Absence {
 public:
  // From here on somebody looks.
  void begin(Nanoseconds now) noexcept { *this = Absence(now); }
  Absence() = default;

  // Until the next look the thread sleeps, unless something arrives. What is found then may have lain for as long as it takes to wake up,
  // or come with the last of a long sleep; so this counts for no more than one peer has under way.
  void sleeps() noexcept { sleeps_ = true; }
  // A packet was found at `now`.
  void found(Nanoseconds now) noexcept {
    if (woken_for_ != 0 && --woken_for_ == 0) slept_ = 0;
    look(now);
    if (++found_ % kQueue == 0) {
      before_ = longest_;
      longest_ = 0;
    }
  }
  // The end of a poll. `nothing`: it found nothing any more. The time since the last look still counts: something may have come after that
  // was seen.
  void polled(Nanoseconds now, bool nothing) noexcept {
    if (nothing) longest_ = before_ = slept_ = 0;
    look(now);
  }
  // For how long what has just been found may have lain there unseen, at most.
  Nanoseconds time() const noexcept { return std::max({longest_, before_, slept_}); }

 private:
  // Longer than it takes to handle a packet. What is shorter is work of ours that a window may well follow.
  static constexpr Nanoseconds kLong = 20 * kMicrosecond;
  static constexpr uint32_t kQueue = 256;  // packets: a receive queue, unless it was asked to be longer

  explicit Absence(Nanoseconds now) noexcept : looked_at_(now) {}
  void look(Nanoseconds now) noexcept {
    const Nanoseconds gap = now - looked_at_;
    looked_at_ = now;
    const bool slept = std::exchange(sleeps_, false);
    if (gap < kLong) return;
    if (slept) {
      slept_ = gap;
      woken_for_ = kFlowWindow;
    } else {
      longest_ = std::max(longest_, gap);
    }
  }

  Nanoseconds looked_at_ = 0;
  Nanoseconds longest_ = 0, before_ = 0;  // of the last kQueue packets or fewer, and of the kQueue before them
  uint32_t found_ = 0;
  Nanoseconds slept_ = 0;
  uint32_t woken_for_ = 0;                // packets for which that still counts
  bool sleeps_ = false;
};

}  // namespace unet::am
