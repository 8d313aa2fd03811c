// refusals.h - decides how long to retry a frame that the kernel refuses; used by packet, tap and pcap.
//
// ENOBUFS and ENOMEM have two causes. Either a queue is full and will soon have room. Or this frame never passes: a filter behind the
// socket drops it each time (tc, netfilter's egress), or there is no memory for a frame of its size. Frames of the second kind must not
// stop the wire, or their sender stops all others.
//
// Retries therefore use up a budget, the patience. Waiting that ends in a drop spends it. Waiting that ends in success fills it, and so
// does a sixteenth of all time. However many such frames there are, the wire stands still for at most 10 ms, plus a sixteenth of the time,
// plus the time of waits that ended in success. With no budget left, a refused frame is dropped at once, as by a full queue.
#pragma once

#include <algorithm>

#include "unet/base/time.h"

namespace unet::drivers {

class Refusals {
 public:
  static constexpr Nanoseconds kPatience = 10 * kMillisecond;  // the maximum; 10 ms is the time of a packet at 1.2 Mbit/s
  static constexpr Nanoseconds kShare = 16;                    // one part in this many of all time

  // Call this when the first frame was refused, perhaps again. True: the caller must drop it.
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
  // Call this when the first frame left the queue for another reason.
  void gone() noexcept { refused_ = false; }
  // Call this when a frame was taken.
  void taken(Nanoseconds now) noexcept {
    if (!refused_) return;
    refused_ = false;
    fill(now - since_);
  }

 private:
  void fill(Nanoseconds more) noexcept { patience_ = std::min(kPatience, patience_ + std::min(more, kPatience)); }

  bool refused_ = false;       // the first frame is being refused, since `since_`
  Nanoseconds since_ = 0;
  Nanoseconds patience_ = kPatience;
  Nanoseconds filled_at_ = 0;
};

}  // namespace unet::drivers
