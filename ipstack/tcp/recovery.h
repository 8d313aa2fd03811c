// recovery.h - parts of loss recovery: the reordering window, the reduction in proportion, and the undo of a needless reduction. Used by
// Connection.
#pragma once

#include <algorithm>

#include "ipstack/tcp/rtt.h"
#include "unet/wire/tcp.h"

namespace unet::tcp {

using Sequence = ip::TcpSequence;

// How much later than its successor a segment may arrive before it counts as lost: RACK.reo_wnd (RFC 8985, 6.2, step 4).
class ReorderWindow {
 public:
  // A needless retransmission widens it, once per round trip: not again until `end` is acknowledged.
  void widen(Sequence end, const RttEstimator& rtt) noexcept {
    if (in_round_) return;
    in_round_ = true;
    round_end_ = end;
    // Up to one RTT, however short the minimum RTT: that one may belong to a previous path.
    if (multiple_ * rtt.least() / 4 < rtt.smooth() && multiple_ != 0xFFFF) ++multiple_;
    recoveries_ = kRecoveries;
  }
  void handle_ack(Sequence una) noexcept {
    if (in_round_ && una >= round_end_) in_round_ = false;
  }
  // A recovery has ended: the window narrows again after some.
  void handle_recovered() noexcept {
    if (recoveries_ != 0 && --recoveries_ == 0) multiple_ = 1;
  }
  bool in_round() const noexcept { return in_round_; }
  Nanoseconds length(const RttEstimator& rtt) const noexcept { return std::min(multiple_ * rtt.least() / 4, rtt.smooth()); }

 private:
  static constexpr uint8_t kRecoveries = 16;

  uint16_t multiple_ = 1;    // quarters of the minimum RTT: RACK.reo_wnd_mult
  uint8_t recoveries_ = 0;   // RACK.reo_wnd_persist
  bool in_round_ = false;    // RACK.dsack_round applies
  Sequence round_end_{};
};

// PRR (RFC 6937, 3.1): sends in proportion to delivered data, so that the window ends at ssthresh.
class ProportionalReduction {
 public:
  // `flight`: RecoverFS.
  void start(uint32_t flight) noexcept {
    flight_ = flight;
    delivered_ = out_ = 0;
  }
  void handle_sent(uint32_t bytes) noexcept { out_ += bytes; }
  // `delivered` bytes were delivered, and `flying` are in flight. Returns how many may be sent now.
  uint32_t handle_delivered(uint32_t delivered, uint32_t flying, uint32_t threshold, uint32_t mss) noexcept {
    delivered_ += delivered;
    if (flying > threshold) {
      const auto share = static_cast<uint32_t>((uint64_t{delivered_} * threshold + flight_ - 1) / flight_);
      return share > out_ ? share - out_ : 0;
    }
    const uint32_t owed = delivered_ > out_ ? delivered_ - out_ : 0;
    return std::min(threshold - flying, std::max(owed, delivered) + mss);
  }

 private:
  uint32_t flight_ = 0;                // RecoverFS: bytes in flight when the recovery began
  uint32_t delivered_ = 0, out_ = 0;   // prr_delivered, prr_out
};

// Whether all retransmissions of the last recovery were needless, so that its reduction is undone. A DSACK tells it (RFC 3708, 3), or a
// timestamp echo of the original (Eifel, RFC 3522, 3.2).
class RecoveryUndo {
 public:
  // A recovery begins; all before `una` is acknowledged. Unless `possible`, it is never undone.
  void start(Sequence una, bool possible) noexcept {
    from_ = una;
    due_ = possible ? 0 : kNever;
  }
  void cancel() noexcept { due_ = kNever; }
  void handle_resent(uint32_t bytes) noexcept {
    if (due_ != kNever) due_ += bytes;
  }
  // Bytes were retransmitted needlessly. Both reports may name the same bytes, and twice: each byte counts once. Reports out of stream
  // order do not count.
  void handle_needless(Sequence left, Sequence right) noexcept {
    left = std::max(left, from_);
    if (due_ == kNever || left >= right) return;
    due_ -= std::min(due_, right - left);
    from_ = right;
  }
  bool all_needless() const noexcept { return due_ == 0; }

 private:
  static constexpr uint32_t kNever = ~uint32_t{0};

  Sequence from_{};          // duplicates reported below it predate the recovery, or have been counted
  uint32_t due_ = kNever;    // bytes that the recovery retransmitted and that have not proved needless
};

}  // namespace unet::tcp
