// congestion.h - how much one flow may have on its way: a window that follows the delay; used by Flow. Without I/O and clock.
//
// After Swift (Kumar et al., SIGCOMM 2020): below the target delay the window grows by one packet per round trip, above it shrinks in
// proportion to the excess, at most once per round trip; below one packet it becomes a pause between packets. Four things differ.
// The target is what the wire itself needs (the least round trip of late) plus a budget for queues, so that one setting serves a wire
// of 4 us and one of 40 ms; until it is first reached, the window doubles with each round trip. After a round trip without a queue it grows
// by twice as much in the next, as a window too small would otherwise stay so for hundreds of them (TIMELY, SIGCOMM 2015, section 4.3, has
// a mode for that). A loss says little on a wire that loses without being full: losses count only when the delay says so too, or when most
// packets are lost. And time for which nobody looked for what had arrived is no delay of the wire.
#pragma once

#include <array>
#include <cstdint>

#include "unet/base/time.h"

namespace unet::am {

struct CongestionOptions {
  uint32_t packet = 1500;                    // bytes by which the window grows per round trip
  uint32_t first_window = 1500;              // bytes: little, so that the first round trip says what the wire itself needs
  uint32_t window_max = 4 * 1024 * 1024;     // bytes
  bool no_wire = false;                      // there is none that could be full: the window is window_max, whatever happens
  double window_min = 0.01;                  // packets: one in a hundred round trips
  Nanoseconds base_delay = 0;                // round trip of the empty wire, if it is known; 0: the least of late. Flows that begin
                                             // while a queue stands take it for the wire, and more than their share: say it if you can
  Nanoseconds budget_min = 3 * kMicrosecond;  // of queueing delay above the least round trip
  double budget = 0.3;                       // likewise, of the least round trip
  double flow_budget = 3.0;                  // more of budget_min for a small window: times 1 / sqrt(packets), at most this much.
                                             // So many flows at one place get equal shares sooner (Swift, section 3.5).
  double decrease = 0.8;                     // share of the excess by which the window shrinks
  double decrease_max = 0.5;                 // in one round trip
  double loss_tolerated = 0.5;               // of 64 packets or more, before losses alone count. A packet of several frames is
                                             // lost with any: of those with three a quarter, where each tenth frame is
};

class Congestion {
 public:
  explicit Congestion(const CongestionOptions& options = {}) noexcept;

  // A round trip took `delay`, and `bytes` of `in_flight` are no longer on their way. For up to `absence` of it nobody looked for what had
  // arrived: processes share cores, and sleep. That says nothing of the wire, so what may be due to it makes no window smaller.
  void handle_ack(uint32_t bytes, uint64_t in_flight, Nanoseconds delay, Nanoseconds absence, Nanoseconds now) noexcept;
  // So many packets are missing; `sent` were sent in all.
  void handle_loss(uint64_t sent, Nanoseconds now) noexcept;
  // Nothing came back for a whole time-out.
  void handle_silence(uint32_t times, Nanoseconds now) noexcept;

  // Whether a packet may leave when `in_flight` bytes are on their way.
  bool may_send(uint64_t in_flight, Nanoseconds now) const noexcept {
    return window_ >= packet_ ? static_cast<double>(in_flight) < window_ : in_flight == 0 && now >= next_send_;
  }
  void handle_sent(Nanoseconds now) noexcept;
  void handle_unsent() noexcept { next_send_ = next_send_before_; }  // the last was not
  // When the next packet may leave, if nothing is on its way; 0: now.
  Nanoseconds next_send() const noexcept { return window_ >= packet_ ? 0 : next_send_; }

  double window() const noexcept { return window_; }            // bytes
  Nanoseconds least_delay() const noexcept { return least_; }   // 0: not known yet
  Nanoseconds smooth_delay() const noexcept { return smooth_; }
  Nanoseconds variation() const noexcept { return variation_; }
  Nanoseconds target() const noexcept;

 private:
  Nanoseconds target_now() noexcept;
  void note_delay(Nanoseconds delay, Nanoseconds absence, Nanoseconds now) noexcept;
  // What comes back within a round trip of a decrease was sent before it.
  bool may_decrease(Nanoseconds now) const noexcept { return now >= decreased_at_ + (last_ > smooth_ ? last_ : smooth_); }
  void decrease(double factor, Nanoseconds now) noexcept;
  void decrease_for_loss(Nanoseconds now) noexcept;
  void grow(uint32_t bytes, uint64_t in_flight, bool empty) noexcept;
  Nanoseconds base() const noexcept { return options_.base_delay != 0 ? options_.base_delay : least_; }

  CongestionOptions options_;
  double packet_;
  double window_;              // bytes
  Nanoseconds least_ = 0;      // round trip, of the last two periods
  std::array<Nanoseconds, 2> period_least_{};
  Nanoseconds period_end_ = 0;
  Nanoseconds smooth_ = 0;     // RFC 6298, section 2
  Nanoseconds variation_ = 0;
  bool unsure_ = false;        // nobody had looked for most of all round trips so far
  Nanoseconds last_ = 0;
  Nanoseconds target_ = 0;     // of
  Nanoseconds target_base_ = 0;
  double target_window_ = 0;
  Nanoseconds decreased_at_ = 0;
  double before_silence_ = 0;  // the window; 0: there is none
  double step_;                // bytes by which the window grows in a round trip
  double round_ = 0;           // bytes of a window that arrived while there was no queue
  bool starting_ = true;       // the target was never reached
  Nanoseconds next_send_ = 0;
  Nanoseconds next_send_before_ = 0;
  uint64_t losses_ = 0;        // since counted_from_
  uint64_t counted_from_ = 0;  // packets sent then
};

}  // namespace unet::am
