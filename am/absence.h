// absence.h - the time for which a thread has not looked for arrived packets; used by Endpoint and by simulations of one.
//
// On a machine with fewer cores than threads a packet waits for milliseconds before a thread takes it. A delay measured then says nothing
// about the wire. A thread loses its core anywhere: between two polls, while it handles a packet, or while it sends. Packets that were
// there when the thread resumes are found later, behind the rest. The longest time between two looks therefore counts until no packet from
// that time can be left: a poll found nothing, or as many packets were found since as a receive queue holds. The longest time counts and
// not the sum, so a receiver that is slower than the wire still makes its sender slow down.
#pragma once

#include <algorithm>
#include <utility>

#include "am/packet.h"
#include "unet/base/time.h"

namespace unet::am {

class Absence {
 public:
  // Starts: the thread looks from `now` on.
  void begin(Nanoseconds now) noexcept { *this = Absence(now); }
  Absence() = default;

  // Until the next look the thread sleeps, unless something arrives. A packet found then may have waited for the wake-up, or have come at
  // the end of a long sleep. This sleep therefore counts only for as many packets as one peer has under way.
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
  // Ends a poll; `nothing`: it found no packet. The time since the last look still counts, because a packet may have come just after that
  // look.
  void polled(Nanoseconds now, bool nothing) noexcept {
    if (nothing) longest_ = before_ = slept_ = 0;
    look(now);
  }
  // Returns the longest time for which the packet just found may have waited.
  Nanoseconds time() const noexcept { return std::max({longest_, before_, slept_}); }

 private:
  // Longer than the handling of a packet. Shorter gaps are our own work, which the window may well follow.
  static constexpr Nanoseconds kLong = 20 * kMicrosecond;
  static constexpr uint32_t kQueue = 256;  // packets in a receive queue of the default length

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
  Nanoseconds longest_ = 0, before_ = 0;  // longest gap during the last kQueue packets or fewer, and during the kQueue before them
  uint32_t found_ = 0;
  Nanoseconds slept_ = 0;
  uint32_t woken_for_ = 0;                // packets for which slept_ still counts
  bool sleeps_ = false;
};

}  // namespace unet::am
