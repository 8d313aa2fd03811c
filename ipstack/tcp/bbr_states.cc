// bbr_states.cc - BBR's state machine: ProbeBW (probes for bandwidth, leaves headroom for others) and ProbeRTT.
#include <algorithm>

#include "ipstack/tcp/bbr.h"
#include "unet/base/random.h"

namespace unet::tcp {
namespace {

constexpr uint32_t kRenoRounds = 63;           // longest wait in rounds, for coexistence with Reno and CUBIC
constexpr Nanoseconds kProbeRttDuration = 200 * kMillisecond;

}  // namespace

// BBR probes for bandwidth now: a loss concerns a rate that was tried on purpose.
bool Bbr::is_probing_bw() const noexcept {
  return state_ == State::startup || state_ == State::probe_bw_refill || state_ == State::probe_bw_up;
}

void Bbr::start_drain() noexcept {
  state_ = State::drain;
  drain_start_round_ = round_count_;
}

void Bbr::start_down() noexcept {
  signals_ = {};
  slope_.stop();
  rounds_since_probe_up_ = static_cast<uint8_t>(next_random(random_) & 1);
  bw_probe_at_ = now_ + 2 * kSecond + next_random(random_) % kSecond;
  ack_phase_ = AckPhase::probe_stopping;
  round_.start(delivered_);
  state_ = State::probe_bw_down;
}

void Bbr::start_refill() noexcept {
  bounds_.reset_short_term();
  slope_.restart();
  prev_probe_precautionary_ = false;
  ack_phase_ = AckPhase::refilling;
  round_.start(delivered_);
  state_ = State::probe_bw_refill;
}

void Bbr::start_up(const RateSample& sample, uint32_t window) noexcept {
  ack_phase_ = AckPhase::probe_starting;
  round_.start(delivered_);
  full_bw_.reset(sample.delivery_rate);
  state_ = State::probe_bw_up;
  slope_.raise(window, mss_);
}

void Bbr::update_cycle(const RateSample& sample, uint32_t window) noexcept {
  if (!full_bw_.is_reached() || adapt_long_term(sample, window)) return;
  switch (state_) {
    case State::probe_bw_down:
      if (is_time_to_probe(window)) return start_refill();
      if (sample.in_flight <= std::min(inflight_with_headroom(), inflight(1))) state_ = State::probe_bw_cruise;
      return;
    case State::probe_bw_cruise:
      if (is_time_to_probe(window)) start_refill();
      return;
    case State::probe_bw_refill:
      if (!round_.begins()) return;
      is_bw_probe_sample_ = true;
      return start_up(sample, window);
    case State::probe_bw_up:
      if (!is_time_to_go_down(sample, window)) return;
      prev_probe_too_high_ = false;
      return start_down();
    case State::startup:
    case State::drain:
    case State::probe_rtt: return;
  }
}

// Probe after a time, or after the rounds that Reno needs to regain its window, at most kRenoRounds.
bool Bbr::is_time_to_probe(uint32_t window) const noexcept {
  if (now_ > bw_probe_at_) return true;
  return rounds_since_probe_up_ >= std::min(std::min(bdp(1), window) / mss_, kRenoRounds);
}

bool Bbr::is_time_to_go_down(const RateSample& sample, uint32_t window) noexcept {
  // The previous probe lost too much: stop when this one reaches inflight_longterm.
  if (prev_probe_too_high_ && sample.in_flight >= bounds_.inflight_longterm) {
    prev_probe_precautionary_ = true;
    return true;
  }
  if (cwnd_limited_ && window >= bounds_.inflight_longterm) {
    full_bw_.reset(sample.delivery_rate);  // inflight_longterm limits the rate, not the path
    return false;
  }
  return full_bw_.is_now();
}

// Adapts inflight_longterm to the feedback of a probe. True: it has chosen the next state.
bool Bbr::adapt_long_term(const RateSample& sample, uint32_t window) noexcept {
  if (ack_phase_ == AckPhase::probe_starting && round_.begins()) ack_phase_ = AckPhase::probe_feedback;
  if (ack_phase_ == AckPhase::probe_stopping && round_.begins()) {
    is_bw_probe_sample_ = false;
    ack_phase_ = AckPhase::init;
    if (in_probe_bw() && !sample.app_limited) max_bw_.advance();
    if (in_probe_bw() && prev_probe_precautionary_ && !prev_probe_too_high_) {
      start_refill();
      return true;
    }
  }
  const bool too_high = sample.sacks ? Losses::is_too_much(sample.lost, sample.tx_in_flight) : sample.lost != 0;
  if (too_high || bounds_.inflight_longterm == kUnlimited) return false;
  bounds_.inflight_longterm = std::max(bounds_.inflight_longterm, sample.tx_in_flight);
  if (state_ == State::probe_bw_up) probe_upward(sample, window);
  return false;
}

void Bbr::probe_upward(const RateSample& sample, uint32_t window) noexcept {
  if (!cwnd_limited_ || window < bounds_.inflight_longterm) return;
  const uint64_t raised = bounds_.inflight_longterm + uint64_t{slope_.take_steps(sample.newly_acked)} * mss_;
  bounds_.inflight_longterm = static_cast<uint32_t>(std::min<uint64_t>(raised, kUnlimited - 1));
  if (round_.begins()) slope_.raise(window, mss_);
}

void Bbr::handle_too_high(uint32_t tx_in_flight, bool app_limited, uint32_t window) noexcept {
  prev_probe_too_high_ = true;
  is_bw_probe_sample_ = false;  // one reaction per probe
  const double least = kBeta * std::min(bdp(1), window);
  if (!app_limited) bounds_.inflight_longterm = std::max(tx_in_flight, static_cast<uint32_t>(least));
  if (state_ != State::probe_bw_up) return;
  undo_state_ = Undo::probe_bw_up;
  start_down();
}

// ---- ProbeRTT

uint32_t Bbr::check_probe_rtt(const RateSample& sample, bool expired, uint32_t window) noexcept {
  if (state_ != State::probe_rtt && expired && !idle_restart_) {
    save_window(window);
    state_ = State::probe_rtt;
    probe_rtt_done_stamp_ = 0;
    ack_phase_ = AckPhase::probe_stopping;
    round_.start(delivered_);
  }
  if (state_ == State::probe_rtt) {
    if (probe_rtt_done_stamp_ == 0) {
      if (sample.in_flight <= probe_rtt_window_) {
        probe_rtt_done_stamp_ = now_ + kProbeRttDuration;
        probe_rtt_round_done_ = false;
        round_.start(delivered_);
      }
    } else {
      if (round_.begins()) probe_rtt_round_done_ = true;
      if (probe_rtt_round_done_) window = check_probe_rtt_done(window);
    }
  }
  if (sample.newly_acked != 0) idle_restart_ = false;
  return window;
}

uint32_t Bbr::check_probe_rtt_done(uint32_t window) noexcept {
  if (probe_rtt_done_stamp_ == 0 || now_ <= probe_rtt_done_stamp_) return window;
  min_rtt_.renew(now_);
  bounds_.reset_short_term();
  if (full_bw_.is_reached()) {
    start_down();
    state_ = State::probe_bw_cruise;  // ProbeRTT has drained the queue
  } else {
    state_ = State::startup;
  }
  return std::max(window, prior_window_);
}

}  // namespace unet::tcp
