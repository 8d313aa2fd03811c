// bbr_model.h - the parts of BBR's path model, each with one estimate of the path. Used by Bbr; names are the draft's (bbr.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "unet/base/time.h"

namespace unet::tcp {

constexpr bool reached(uint32_t delivered, uint32_t mark) noexcept { return static_cast<int32_t>(delivered - mark) >= 0; }

// A round trip of data: it ends when data that was sent after its start is delivered.
class RoundTrip {
 public:
  explicit RoundTrip(uint32_t delivered) noexcept : end_(delivered) {}
  void start(uint32_t delivered) noexcept { end_ = delivered; }
  // An ACK delivers data that was sent when `prior` bytes had been delivered. True: this ACK starts the next round trip.
  bool update(uint32_t prior, uint32_t delivered) noexcept {
    begins_ = reached(prior, end_);
    if (begins_) end_ = delivered;
    return begins_;
  }
  void clear() noexcept { begins_ = false; }
  // The present ACK has started a round trip.
  bool begins() const noexcept { return begins_; }

 private:
  uint32_t end_;
  bool begins_ = false;
};

// BBR.max_bw: maximum of the present cycle and the previous one.
class MaxBwFilter {
 public:
  void update(double rate) noexcept { slots_[1] = slots_[1] < rate ? rate : slots_[1]; }
  // A cycle without a sample keeps the previous cycle's maximum.
  void advance() noexcept {
    if (slots_[1] == 0) return;
    slots_ = {slots_[1], 0};
  }
  double max() const noexcept { return slots_[0] < slots_[1] ? slots_[1] : slots_[0]; }

 private:
  std::array<double, 2> slots_{};
};

// Maximum of the last `rounds` rounds, in two halves: it covers between half of them and all.
class MaxRoundFilter {
 public:
  void update(uint32_t value, uint32_t round, uint32_t rounds) noexcept {
    if (round - since_ >= (rounds + 1) / 2) {
      slots_ = {rounds > 1 ? slots_[1] : 0, 0};
      since_ = round;
    }
    slots_[1] = slots_[1] < value ? value : slots_[1];
  }
  uint32_t max() const noexcept { return slots_[0] < slots_[1] ? slots_[1] : slots_[0]; }

 private:
  std::array<uint32_t, 2> slots_{};
  uint32_t since_ = 0;
};

// BBR.min_rtt: minimum of the last ten seconds.
class MinRttFilter {
 public:
  // `rtt`: the minimum so far; 0: unknown.
  MinRttFilter(Nanoseconds rtt, Nanoseconds now) noexcept : rtt_(rtt), since_(now) {}
  Nanoseconds rtt() const noexcept { return rtt_; }

  // Returns whether the minimum has expired: any sample replaces it.
  bool is_expired(Nanoseconds now) const noexcept { return now > since_ + kLength; }
  // True: the sample is the first one of this path. `rtt` of 0: there is no sample.
  bool update(Nanoseconds rtt, Nanoseconds now) noexcept {
    if (rtt == 0 || (rtt_ != 0 && rtt >= rtt_ && !is_expired(now))) return false;
    since_ = now;
    return std::exchange(rtt_, rtt) == 0;
  }
  // ProbeRTT has measured the minimum: it holds for another ten seconds.
  void renew(Nanoseconds now) noexcept { since_ = now; }

 private:
  static constexpr Nanoseconds kLength = 10 * kSecond;

  Nanoseconds rtt_, since_;
};

// BBR.extra_acked: how much more is acknowledged at once than the bandwidth explains.
class AckAggregation {
 public:
  explicit AckAggregation(Nanoseconds now) noexcept : since_(now) {}
  void restart(Nanoseconds now) noexcept {
    since_ = now;
    delivered_ = 0;
  }
  // `acked` bytes were acknowledged. Counts at most `window` as extra, over `rounds` rounds.
  void update(uint32_t acked, double bw, Nanoseconds now, uint32_t window, uint32_t round, uint32_t rounds) noexcept {
    double expected = bw * static_cast<double>(now - since_) / 1e9;
    if (static_cast<double>(delivered_) <= expected) {
      restart(now);
      expected = 0;
    }
    delivered_ += acked;
    extra_.update(static_cast<uint32_t>(std::min<double>(static_cast<double>(delivered_) - expected, window)), round, rounds);
  }
  uint32_t extra() const noexcept { return extra_.max(); }

 private:
  MaxRoundFilter extra_;
  Nanoseconds since_;
  uint64_t delivered_ = 0;
};

// BBR.full_bw: whether the bandwidth has stopped growing.
class FullBandwidth {
 public:
  // Starts to look for the end of growth.
  void reset(double rate) noexcept {
    rate_ = rate;
    rounds_ = 0;
    is_now_ = false;
  }
  // A rate sample that the application did not limit.
  void update(double rate, bool round_begins) noexcept {
    if (is_now_ || rate <= 0) return;
    if (rate >= rate_ * kGrowth) return reset(rate);
    if (!round_begins) return;
    is_now_ = ++rounds_ >= kPlateauRounds;
    if (is_now_) is_reached_ = true;
  }
  void set_reached(bool is_reached) noexcept { is_reached_ = is_reached; }
  bool is_now() const noexcept { return is_now_; }          // BBR.full_bw_now
  bool is_reached() const noexcept { return is_reached_; }  // BBR.full_bw_reached: since Startup

 private:
  static constexpr double kGrowth = 1.25;  // lower growth is a plateau
  static constexpr uint8_t kPlateauRounds = 3;

  double rate_ = 0;
  uint8_t rounds_ = 0;
  bool is_now_ = false, is_reached_ = false;
};

// The bounds that losses set: the short-term ones until the next probe for bandwidth, and the long-term one.
struct LossBounds {
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();
  static constexpr uint32_t kUnlimited = ~uint32_t{0};

  void reset_short_term() noexcept {
    bw_shortterm = kInfinite;
    inflight_shortterm = kUnlimited;
  }
  void raise_to(const LossBounds& other) noexcept {
    bw_shortterm = std::max(bw_shortterm, other.bw_shortterm);
    inflight_shortterm = std::max(inflight_shortterm, other.inflight_shortterm);
    inflight_longterm = std::max(inflight_longterm, other.inflight_longterm);
  }

  double bw_shortterm = kInfinite;
  uint32_t inflight_shortterm = kUnlimited, inflight_longterm = kUnlimited;
};

// What the path has delivered and lost in the present loss round.
struct CongestionSignals {
  void forget_losses() noexcept {
    is_loss_in_round = false;
    lost_ranges = 0;
  }
  void update(double rate, uint32_t delivered) noexcept {
    bw_latest = std::max(bw_latest, rate);
    inflight_latest = std::max(inflight_latest, delivered);
  }
  void add_ranges(uint32_t ranges) noexcept { lost_ranges = static_cast<uint8_t>(std::min<uint32_t>(lost_ranges + ranges, 255)); }

  double bw_latest = 0;
  uint32_t inflight_latest = 0;
  bool is_loss_in_round = false;
  uint8_t lost_ranges = 0;
};

// How fast a probe for bandwidth raises the long-term bound: one segment in the first round trip, twice as many in each that follows.
class ProbeSlope {
 public:
  void restart() noexcept { rounds_ = acked_ = 0; }
  void raise(uint32_t window, uint32_t mss) noexcept {
    acked_per_step_ = std::max(window >> rounds_, mss);
    rounds_ = std::min(rounds_ + 1, kRoundsMost);
  }
  // Returns by how many segments the bound rises after `acked` more bytes.
  uint32_t take_steps(uint32_t acked) noexcept {
    acked_ += acked;
    const uint32_t steps = acked_ / acked_per_step_;
    acked_ -= steps * acked_per_step_;
    return steps;
  }
  void stop() noexcept { acked_per_step_ = ~uint32_t{0}; }

 private:
  static constexpr uint32_t kRoundsMost = 30;

  uint32_t acked_per_step_ = ~uint32_t{0};  // BBR.probe_up_acked_per_inc
  uint32_t acked_ = 0;                      // BBR.bw_probe_up_acked
  uint32_t rounds_ = 0;                     // BBR.bw_probe_up_rounds
};

}  // namespace unet::tcp
