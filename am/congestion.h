// congestion.h - how many bytes one flow may have in flight: a window that follows the delay; used by Flow. Without I/O and clock.
//
// Based on Swift (Kumar et al., SIGCOMM 2020). Below the target delay the window grows by one packet per round trip. Above it the window
// shrinks in proportion to the excess, at most once per round trip. Below one packet it becomes a pause between packets. Four things
// differ:
//   - The target is the least recent round trip plus a budget for queues, so one setting serves a wire of 4 us and one of 40 ms. Until the
//     target is first reached, the window doubles with each round trip.
//   - After a round trip without a queue the window grows twice as fast in the next. Otherwise a window that is too small would stay so for
//     hundreds of round trips. TIMELY (SIGCOMM 2015, section 4.3) has a mode for that.
//   - A loss says little on a wire that loses packets without being full. Losses count only when the delay agrees, or when most packets are
//     lost.
//   - Time for which the receiver did not look for packets is no delay of the wire.
#pragma once

#include <array>
#include <cstdint>

#include "unet/base/time.h"

namespace unet::am {

struct CongestionOptions {
  uint32_t packet = 1500;                    // bytes by which the window grows per round trip
  uint32_t first_window = 1500;              // bytes: small, so that the first round trip measures the empty wire
  uint32_t window_max = 4 * 1024 * 1024;     // bytes
  bool no_wire = false;                      // no wire can be full: the window stays window_max
  double window_min = 0.01;                  // packets: one packet in a hundred round trips
  Nanoseconds base_delay = 0;                // round trip of the empty wire; 0: the least recent one. A flow that begins behind a standing
                                             // queue takes the queue for the wire, and more than its share: set this if you know it
  Nanoseconds budget_min = 3 * kMicrosecond;  // queueing delay above the least round trip
  double budget = 0.3;                       // the same as a share of the least round trip
  double flow_budget = 3.0;                  // a small window gets more of budget_min: times 1 / sqrt(packets), at most this factor. So
                                             // many flows to one place get equal shares sooner (Swift, section 3.5).
  double decrease = 0.8;                     // share of the excess by which the window shrinks
  double decrease_max = 0.5;                 // most by which it shrinks in one round trip
  double loss_tolerated = 0.5;               // share of 64 packets or more that may be lost before losses alone count. A packet of several
                                             // frames is lost with any of them: with three frames a quarter of packets, where each tenth
                                             // frame is lost
};

class Congestion {
 public:
  explicit Congestion(const CongestionOptions& options = {}) noexcept;

  // A round trip took `delay`, and acknowledged `bytes` of `in_flight`. For up to `absence` of the delay a side did not look for packets,
  // because processes share cores and sleep. This part of a delay says nothing about the wire, so it never shrinks the window.
  void handle_ack(uint32_t bytes, uint64_t in_flight, Nanoseconds delay, Nanoseconds absence, Nanoseconds now) noexcept;
  // One packet was lost; `sent` counts all packets sent so far.
  void handle_loss(uint64_t sent, Nanoseconds now) noexcept;
  // Nothing came back for a whole time-out; `times` time-outs in a row preceded it.
  void handle_silence(uint32_t times, Nanoseconds now) noexcept;

  // Returns whether a packet may leave while `in_flight` bytes are in flight.
  bool may_send(uint64_t in_flight, Nanoseconds now) const noexcept {
    return window_ >= packet_ ? static_cast<double>(in_flight) < window_ : in_flight == 0 && now >= next_send_;
  }
  void handle_sent(Nanoseconds now) noexcept;
  void handle_unsent() noexcept { next_send_ = next_send_before_; }  // undoes the last handle_sent()
  // Returns when the next packet may leave if nothing is in flight; 0: now.
  Nanoseconds next_send() const noexcept { return window_ >= packet_ ? 0 : next_send_; }

  double window() const noexcept { return window_; }            // bytes
  Nanoseconds least_delay() const noexcept { return least_; }   // 0: not known yet
  Nanoseconds smooth_delay() const noexcept { return smooth_; }
  Nanoseconds variation() const noexcept { return variation_; }
  Nanoseconds target() const noexcept;

 private:
  Nanoseconds target_now() noexcept;
  void note_delay(Nanoseconds delay, Nanoseconds absence, Nanoseconds now) noexcept;
  // Acknowledgements within a round trip after a decrease are for packets sent before it.
  bool may_decrease(Nanoseconds now) const noexcept { return now >= decreased_at_ + (last_ > smooth_ ? last_ : smooth_); }
  void decrease(double factor, Nanoseconds now) noexcept;
  void decrease_for_loss(Nanoseconds now) noexcept;
  void grow(uint32_t bytes, uint64_t in_flight, bool empty) noexcept;
  Nanoseconds base() const noexcept { return options_.base_delay != 0 ? options_.base_delay : least_; }

  CongestionOptions options_;
  double packet_;
  double window_;              // bytes
  Nanoseconds least_ = 0;      // least round trip of the last two periods
  std::array<Nanoseconds, 2> period_least_{};
  Nanoseconds period_end_ = 0;
  Nanoseconds smooth_ = 0;     // RFC 6298, section 2
  Nanoseconds variation_ = 0;
  bool unsure_ = false;        // absence covers most of every round trip so far
  Nanoseconds last_ = 0;
  Nanoseconds target_ = 0;     // computed for target_base_ and target_window_
  Nanoseconds target_base_ = 0;
  double target_window_ = 0;
  Nanoseconds decreased_at_ = 0;
  double before_silence_ = 0;  // the window before it; 0: no silence
  double step_;                // bytes by which the window grows in a round trip
  double round_ = 0;           // bytes acknowledged while there was no queue
  bool starting_ = true;       // the target has never been reached
  Nanoseconds next_send_ = 0;
  Nanoseconds next_send_before_ = 0;
  uint64_t losses_ = 0;        // since counted_from_
  uint64_t counted_from_ = 0;  // packets sent then
};

}  // namespace unet::am
