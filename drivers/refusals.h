// refusals.h - a frame that the kernel has no room for, or never takes: tried for a time, and then dropped; used by packet, tap and pcap.
//
// ENOBUFS and ENOMEM say either: a queue is full, and has room soon; or a filter behind the socket drops that frame each time (tc,
// netfilter's egress), or there is no memory for one of its size. The second must not stop the wire, or whoever sends such frames stops
// everybody. So what was dropped while the next frame went at once shortens the patience with others, to nothing in the end; and a frame
// that was refused and then taken says that waiting is worth it, as does a second without such drops.
#pragma once

#include "unet/base/time.h"

namespace unet::drivers {

class Refusals {
 public:
  static constexpr Nanoseconds kPatience = 10 * kMillisecond;  // a packet's time at 1.2 Mbit/s
  static constexpr Nanoseconds kForget = kSecond;

  // The first frame was refused, perhaps again. True: it is to be dropped.
  bool give_up(Nanoseconds now) noexcept {
    if (!refused_) {
      refused_ = true;
      since_ = now;
      if (now - dropped_at_ >= kForget) patience_ = kPatience;
    }
    if (now - since_ < patience_) return false;
    refused_ = false;
    dropped_ = true;
    dropped_at_ = now;
    return true;
  }
  // A frame was taken.
  void taken() noexcept {
    if (refused_) patience_ = kPatience;
    else if (dropped_) patience_ /= 4;
    refused_ = dropped_ = false;
  }

 private:
  bool refused_ = false;       // the first frame, since then
  bool dropped_ = false;       // the one before it
  Nanoseconds since_ = 0, dropped_at_ = 0;
  Nanoseconds patience_ = kPatience;
};

}  // namespace unet::drivers
