// refusals.h - a frame that the kernel has no room for, or never takes: tried for a time, and then dropped; used by packet, tap and pcap.
//
// ENOBUFS and ENOMEM say either: a queue is full, and has room soon; or a filter behind the socket drops that frame each time (tc,
// netfilter's egress), or there is no memory for one of its size. The second must not stop the wire, or whoever sends such frames stops
// everybody. So there is a store of patience, which what was waited in vain is taken from. It is filled by what was not waited in vain,
// and by a sixteenth of all time: however many such frames there are, and whatever else is sent, the wire stands still for 10 ms, a
// sixteenth of the time, and as long again as it would have anyway. Who is refused while nothing is left of it is dropped at once, as by a
// full queue.
#pragma once

#include <algorithm>

#include "unet/base/time.h"

namespace unet::drivers {

class Refusals {
 public:
  static constexpr Nanoseconds kPatience = 10 * kMillisecond;  // at most; a packet's time at 1.2 Mbit/s
  static constexpr Nanoseconds kShare = 16;                    // of the time

  // The first frame was refused, perhaps again. True: it is to be dropped.
  bool give_up(Nanoseconds now) noexcept {
    const Nanoseconds more = (now - filled_at_) / kShare;
    filled_at_ += more * kShare;
    fill(more);
    if (!refused_) {
      refused_ = true;
      since_ = now;
    }
    const Nanoseconds waited = now - since_;
    if (waited < patience_) return false;
    patience_ -= std::min(patience_, waited);
    refused_ = false;
    return true;
  }
  // The first frame is no more, for another reason.
  void gone() noexcept { refused_ = false; }
  // A frame was taken.
  void taken(Nanoseconds now) noexcept {
    if (!refused_) return;
    refused_ = false;
    fill(now - since_);
  }

 private:
  void fill(Nanoseconds more) noexcept { patience_ = std::min(kPatience, patience_ + std::min(more, kPatience)); }

  bool refused_ = false;       // the first frame, since then
  Nanoseconds since_ = 0;
  Nanoseconds patience_ = kPatience;
  Nanoseconds filled_at_ = 0;
};

}  // namespace unet::drivers
