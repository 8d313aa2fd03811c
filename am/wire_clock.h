// wire_clock.h - the time for an endpoint's wires, and when the next of them has a time-out; used by Endpoint.
#pragma once

#include <algorithm>

#include "am/clock.h"

namespace unet::am {

class WireClock {
 public:
  // Never goes back: a counter may be behind that of another core, or of the machine from which a virtual one was moved.
  Nanoseconds now() noexcept { return now_ = std::max(now_, flow_now()); }
  // Begins a poll: the next poll_time() reads the clock, unless a wire is pumped first.
  void begin_poll() noexcept { is_recent_ = false; }
  Nanoseconds poll_time() noexcept { return is_recent_ ? now_ : now(); }
  // Returns the time for a wire's pump.
  Nanoseconds pump_time() noexcept {
    is_recent_ = true;
    return now();
  }

  // A wire has its next time-out at `time`; 0: at the next poll.
  void schedule(Nanoseconds time) noexcept { next_ = std::min(next_, time); }
  // Whether time-outs must be checked now. If so, forgets the schedule: the check makes a new one. Polls that found messages check rarely.
  bool take_due(Nanoseconds now, bool empty) noexcept {
    if (!empty && ++busy_polls_ % kBusyPollsPerCheck != 0) return false;
    if (now < next_) return false;
    next_ = kNever;
    return true;
  }
  Nanoseconds next_timeout() const noexcept { return next_; }

 private:
  static constexpr uint32_t kBusyPollsPerCheck = 16;

  Nanoseconds now_ = flow_now();  // the latest time that now() has returned
  Nanoseconds next_ = kNever;
  uint32_t busy_polls_ = 0;
  bool is_recent_ = false;        // this poll has pumped a wire
};

}  // namespace unet::am
