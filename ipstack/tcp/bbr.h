// bbr.h - BBR (draft-ietf-ccwg-bbr, version 3): a model of the path's bandwidth and minimum RTT, and from it a pacing rate and a congestion
// window. Used by Congestion, which owns one while its connection uses BBR.
//
// Names are the draft's. Rates are bytes per second. Volumes are bytes, where the draft sometimes counts segments.
#pragma once

#include <array>
#include <cstdint>

#include "ipstack/tcp/bbr_model.h"
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

// One class, because each state of the draft's machine reads and sets most variables of the model. What one estimate needs alone is in
// bbr_model.h.
class Bbr {
 public:
  enum class State : uint8_t { startup, drain, probe_bw_down, probe_bw_cruise, probe_bw_refill, probe_bw_up, probe_rtt };
  static constexpr uint32_t kUnlimited = LossBounds::kUnlimited;

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
  double bw_shortterm() const noexcept { return bounds_.bw_shortterm; }          // infinity: none
  uint32_t inflight_shortterm() const noexcept { return bounds_.inflight_shortterm; }  // kUnlimited: none
  uint32_t inflight_longterm() const noexcept { return bounds_.inflight_longterm; }    // likewise
  Nanoseconds min_rtt() const noexcept { return min_rtt_.rtt(); }          // 0: unknown
  uint32_t extra_acked() const noexcept { return aggregation_.extra(); }

 private:
  static constexpr double kBeta = 0.7;  // BBR.Beta
  enum class AckPhase : uint8_t { init, refilling, probe_starting, probe_feedback, probe_stopping };
  enum class Undo : uint8_t { none, startup, probe_bw_up };

  // The path model.
  void update_congestion_signals(const RateSample& sample, uint32_t window) noexcept;
  void check_startup(const RateSample& sample) noexcept;
  bool update_min_rtt(const RateSample& sample) noexcept;
  void adapt_lower_bounds(uint32_t window) noexcept;
  void note_loss(uint32_t window) noexcept;
  void save_upon_loss(uint32_t window) noexcept;
  void end_startup() noexcept;

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
  void handle_too_high(uint32_t tx_in_flight, bool app_limited, uint32_t window) noexcept;
  bool is_time_to_probe(uint32_t window) const noexcept;
  bool is_time_to_go_down(const RateSample& sample, uint32_t window) noexcept;
  uint32_t check_probe_rtt(const RateSample& sample, bool expired, uint32_t window) noexcept;
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

  // The model of the path.
  Nanoseconds now_;
  MinRttFilter min_rtt_;
  double bw_ = 0;                        // min(max_bw, bw_shortterm)
  double pacing_rate_ = 0;
  MaxBwFilter max_bw_;
  LossBounds bounds_;
  CongestionSignals signals_;
  RoundTrip round_, loss_round_;
  FullBandwidth full_bw_;
  AckAggregation aggregation_;
  uint32_t delivered_;                   // C.delivered at the last ACK
  uint32_t round_count_ = 0;
  uint32_t mss_;
  uint32_t initial_window_, initial_delivered_;

  // The state and what leads to the next one.
  State state_ = State::startup;
  AckPhase ack_phase_ = AckPhase::init;
  Undo undo_state_ = Undo::none;
  bool is_bw_probe_sample_ : 1 = false;
  bool prev_probe_too_high_ : 1 = false, prev_probe_precautionary_ : 1 = false;
  bool probe_rtt_round_done_ : 1 = false;
  bool idle_restart_ : 1 = false;
  bool cwnd_limited_ : 1 = false;
  bool in_recovery_ : 1 = false;
  bool had_initial_window_ : 1 = false;  // an initial window was delivered: the model is meaningful
  uint8_t rounds_since_probe_up_ = 0;
  uint32_t cwnd_limited_until_ = 0;
  uint32_t drain_start_round_ = 0;
  uint32_t probe_rtt_window_;
  Nanoseconds probe_rtt_done_stamp_ = 0;
  Nanoseconds bw_probe_at_ = 0;          // the next probe for bandwidth, unless rounds make it come first
  ProbeSlope slope_;
  uint32_t prior_window_ = 0;
  LossBounds undo_bounds_;
  uint64_t random_;
};

// A connection and its BBR together take a kilobyte at most.
static_assert(sizeof(Bbr) <= 384);

constexpr const char* to_string(Bbr::State state) noexcept {
  constexpr std::array kNames{"startup", "drain", "down", "cruise", "refill", "up", "probe_rtt"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace unet::tcp
