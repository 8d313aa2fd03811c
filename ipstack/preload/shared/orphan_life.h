// orphan_life.h - how long an orphan process lives; used by process_end.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "unet/base/time.h"

namespace unet::preload {

class OrphanLife {
 public:
  // This process is an orphan from now on. Until `wanted_until` it also serves requests that other processes may still make.
  void begin(Nanoseconds wanted_until) noexcept { wanted_until_ = wanted_until; }
  bool is_orphan() const noexcept { return wanted_until_ != 0; }
  bool may_be_wanted(Nanoseconds at) const noexcept { return at < wanted_until_; }
  // Whether the process may end. It stays while another process needs it, and shortly after, until the network interface knows the other
  // owners. `idle`: the stack has nothing to finish. `arrivals`: Poller::arrivals().
  bool is_over(Nanoseconds at, bool needed, bool idle, uint64_t arrivals) noexcept {
    const bool heard = std::exchange(arrivals_, arrivals) != arrivals;
    if (needed) unneeded_since_ = 0;
    else if (unneeded_since_ == 0 || (heard && !idle)) unneeded_since_ = at;
    return !needed && at - unneeded_since_ > (idle ? kUnderWay : kLinger);
  }
  // The longest time that the helper may sleep.
  Nanoseconds limit(Nanoseconds at) const noexcept {
    const Nanoseconds most = at < wanted_until_ ? wanted_until_ - at : ~Nanoseconds{0};
    return unneeded_since_ != 0 ? std::min(most, kUnderWay) : most;
  }

 private:
  static constexpr Nanoseconds kUnderWay = kSecond / 10;
  static constexpr Nanoseconds kLinger = 60 * kSecond;  // wait for a silent peer that has not acknowledged all data

  Nanoseconds wanted_until_ = 0;    // 0: this process has a program
  Nanoseconds unneeded_since_ = 0;  // 0: it is needed
  uint64_t arrivals_ = 0;
};

}  // namespace unet::preload
