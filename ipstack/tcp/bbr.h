// bbr.h - BBR (draft-ietf-ccwg-bbr, version 3): a model of the path's bandwidth and minimum RTT, and from it a pacing rate and a congestion
// window. Used by Congestion, which owns one while its connection uses BBR.
//
// Names are the draft's. Rates are bytes per second. Volumes are bytes, where the draft sometimes counts segments.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "ipstack/tcp/scoreboard.h"
#include "unet/base/time.h"

namespace unet::tcp {

// The rate sample of one ACK (RS of the draft), with the connection's state after it.
struct RateSample {
  Nanoseconds now = 0;
  Nanoseconds rtt = 0;             // of the delivered data sent last; 0: none was sent only once
  double delivery_rate = 0;        // 0: unknown
  uint32_t newly_acked = 0;
  uint32_t in_flight = 0;          // C.inflight after this ACK
  uint32_t total_delivered = 0;    // C.delivered, modulo 2^32
  bool sacks = false;              // C.has_selective_acks
  // These describe the newest delivered record; valid if has_record.
  bool has_record = false, app_limited = false;
  uint32_t prior_delivered = 0;
  uint32_t delivered = 0;          // bytes since that record was sent
  uint32_t lost = 0;               // likewise
  uint32_t tx_in_flight = 0;       // C.inflight when it was sent, with it
};

// Maximum of the present cycle and the previous one.
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

class Bbr {
 public:
  enum class State : uint8_t { startup, drain, probe_bw_down, probe_bw_cruise, probe_bw_refill, probe_bw_up, probe_rtt };
  static constexpr uint32_t kUnlimited = ~uint32_t{0};

  struct Start {
    Nanoseconds now = 0;
    Nanoseconds rtt = 0;           // minimum RTT so far; 0: unknown
    uint32_t delivered = 0;        // C.delivered
    uint64_t seed = 0;             // randomizes the wait between probes
  };
  Bbr(const Start& start, uint32_t mss, uint32_t window) noexcept;

  // Data was delivered: UpdateOnACK(). Returns the window.
  uint32_t handle_ack(const RateSample& sample, uint32_t window) noexcept;
  // Losses were detected.
  void handle_losses(const Losses& losses, uint32_t window) noexcept;
  // A tail loss probe repaired a loss.
  void handle_tail_loss(uint32_t window) noexcept { note_loss(window); }
  // A classic ECN echo counts as a loss above BBR.LossThresh (RFC 3168, 5).
  void handle_mark(uint32_t tx_in_flight, uint32_t window) noexcept;
  void handle_recovery(uint32_t window) noexcept;
  void handle_timeout(uint32_t window, bool again) noexcept;
  // Recovery has ended. Returns the window.
  uint32_t handle_recovered(uint32_t window) noexcept;
  // The last recovery was spurious: HandleSpuriousLossDetection(). Returns the window.
  uint32_t handle_spurious(uint32_t window) noexcept;
  // The application sends again after idle, with nothing in flight: HandleRestartFromIdle(). Returns the window.
  uint32_t handle_restart(uint32_t window, Nanoseconds now) noexcept;
  // Only the window kept more from being sent; this lasts until `until` bytes are delivered.
  void note_limited(uint32_t until) noexcept {
    cwnd_limited_ = true;
    cwnd_limited_until_ = until;
  }
  void set_mss(uint32_t mss) noexcept { mss_ = mss; }

  State state() const noexcept { return state_; }
  double pacing_rate() const noexcept { return pacing_rate_; }
  double pacing_gain() const noexcept;
  double cwnd_gain() const noexcept;
  double max_bw() const noexcept { return max_bw_.max(); }
  double bw() const noexcept { return bw_; }
  double bw_shortterm() const noexcept { return bw_shortterm_; }          // infinity: none
  uint32_t inflight_shortterm() const noexcept { return inflight_shortterm_; }  // kUnlimited: none
  uint32_t inflight_longterm() const noexcept { return inflight_longterm_; }    // likewise
  Nanoseconds min_rtt() const noexcept { return min_rtt_; }               // 0: unknown
  uint32_t extra_acked() const noexcept { return extra_acked_.max(); }

 private:
  static constexpr double kBeta = 0.7;  // BBR.Beta
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();
  enum class AckPhase : uint8_t { init, refilling, probe_starting, probe_feedback, probe_stopping };
  enum class Undo : uint8_t { none, startup, probe_bw_up };

  // The path model.
  void update_latest_signals(const RateSample& sample) noexcept;
  void update_congestion_signals(const RateSample& sample, uint32_t window) noexcept;
  void update_ack_aggregation(const RateSample& sample, uint32_t window) noexcept;
  void check_full_bw(const RateSample& sample) noexcept;
  void check_startup(const RateSample& sample) noexcept;
  void update_min_rtt(const RateSample& sample) noexcept;
  void adapt_lower_bounds(uint32_t window) noexcept;
  void note_loss(uint32_t window) noexcept;
  void save_upon_loss(uint32_t window) noexcept;
  void reset_short_term() noexcept;
  void reset_full_bw(double rate) noexcept;
  void reset_congestion_signals() noexcept;
  void start_round() noexcept { next_round_delivered_ = delivered_; }

  // The state machine.
  bool is_probing_bw() const noexcept;
  bool in_probe_bw() const noexcept { return state_ >= State::probe_bw_down && state_ <= State::probe_bw_up; }
  void start_drain() noexcept;
  void start_down() noexcept;
  void start_refill() noexcept;
  void start_up(const RateSample& sample, uint32_t window) noexcept;
  void update_cycle(const RateSample& sample, uint32_t window) noexcept;
  bool adapt_long_term(const RateSample& sample, uint32_t window) noexcept;
  void probe_upward(const RateSample& sample, uint32_t window) noexcept;
  void raise_slope(uint32_t window) noexcept;
  void handle_too_high(uint32_t tx_in_flight, bool app_limited, uint32_t window) noexcept;
  bool is_time_to_probe(uint32_t window) const noexcept;
  bool is_time_to_go_down(const RateSample& sample, uint32_t window) noexcept;
  uint32_t check_probe_rtt(const RateSample& sample, uint32_t window) noexcept;
  uint32_t check_probe_rtt_done(uint32_t window) noexcept;

  // The control parameters.
  void init_pacing_rate(Nanoseconds trip) noexcept;
  void set_pacing_rate(double gain) noexcept;
  uint32_t set_window(const RateSample& sample, uint32_t window) noexcept;
  uint32_t bdp(double gain) const noexcept;
  uint32_t least_window() const noexcept { return 4 * mss_; }  // BBR.MinPipeCwnd
  uint32_t quantize(uint32_t volume) const noexcept;
  uint32_t inflight(double gain) const noexcept { return quantize(bdp(gain)); }
  uint32_t inflight_with_headroom() const noexcept;
  void save_window(uint32_t window) noexcept;

  State state_ = State::startup;
  AckPhase ack_phase_ = AckPhase::init;
  Undo undo_state_ = Undo::none;
  bool round_start_ : 1 = false, loss_round_start_ : 1 = false;
  bool is_loss_in_round_ : 1 = false;
  bool full_bw_now_ : 1 = false, full_bw_reached_ : 1 = false;
  bool is_bw_probe_sample_ : 1 = false;
  bool prev_probe_too_high_ : 1 = false, prev_probe_precautionary_ : 1 = false;
  bool min_rtt_expired_ : 1 = false;
  bool probe_rtt_round_done_ : 1 = false;
  bool idle_restart_ : 1 = false;
  bool cwnd_limited_ : 1 = false;
  bool in_recovery_ : 1 = false;
  bool had_initial_window_ : 1 = false;  // an initial window was delivered: the model is meaningful
  bool rtt_seen_ : 1 = false;
  uint8_t full_bw_count_ = 0;
  uint8_t bw_probe_up_rounds_ = 0;
  uint8_t rounds_since_probe_up_ = 0;
  uint8_t lost_ranges_ = 0;              // in this round
  uint32_t mss_;
  uint32_t initial_window_;
  uint32_t initial_delivered_;
  uint32_t delivered_;                   // C.delivered at the last ACK
  uint32_t round_count_ = 0, drain_start_round_ = 0;
  uint32_t next_round_delivered_, loss_round_delivered_;
  uint32_t cwnd_limited_until_ = 0;
  uint32_t prior_window_ = 0;
  uint32_t probe_rtt_window_;
  uint32_t probe_up_acked_per_inc_ = kUnlimited, bw_probe_up_acked_ = 0;
  uint32_t inflight_latest_ = 0;
  uint32_t inflight_shortterm_ = kUnlimited, inflight_longterm_ = kUnlimited;
  uint32_t undo_inflight_shortterm_ = kUnlimited, undo_inflight_longterm_ = kUnlimited;
  MaxRoundFilter extra_acked_;
  MaxBwFilter max_bw_;
  double bw_ = 0, bw_latest_ = 0, bw_shortterm_ = kInfinite, undo_bw_shortterm_ = kInfinite;
  double full_bw_ = 0;
  double pacing_rate_ = 0;
  Nanoseconds now_;
  Nanoseconds min_rtt_, min_rtt_stamp_;
  Nanoseconds probe_rtt_done_stamp_ = 0;
  Nanoseconds cycle_stamp_ = 0, bw_probe_wait_ = 0;
  Nanoseconds extra_acked_since_;
  uint64_t extra_acked_delivered_ = 0;
  uint64_t random_;
};

// A connection and its BBR together take a kilobyte at most.
static_assert(sizeof(Bbr) <= 384);

constexpr const char* to_string(Bbr::State state) noexcept {
  constexpr std::array kNames{"startup", "drain", "down", "cruise", "refill", "up", "probe_rtt"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace unet::tcp
