// bbr.cc - BBR's path model, and the control parameters: pacing rate and window.
#include "ipstack/tcp/bbr.h"

#include <algorithm>

namespace unet::tcp {
namespace {

constexpr double kPacing = 0.99;            // 1 - BBR.PacingMarginPercent
constexpr double kBwGrowth = 1.25;          // lower growth is a plateau
constexpr uint8_t kPlateauRounds = 3;
constexpr uint8_t kStartupLostRanges = 6;   // BBRStartupFullLossCnt
constexpr double kBwMost = 1e12;            // faster than any link
constexpr uint32_t kVolumeMost = 1u << 30;  // more than any path holds
constexpr uint32_t kExtraAckedRounds = 10;
constexpr uint32_t kQuantumMost = 64 * 1024;
constexpr Nanoseconds kMinRttFilter = 10 * kSecond;

constexpr bool reached(uint32_t delivered, uint32_t mark) noexcept { return static_cast<int32_t>(delivered - mark) >= 0; }

constexpr uint32_t volume(double bytes) noexcept {
  return bytes >= kVolumeMost ? kVolumeMost : bytes <= 0 ? 0 : static_cast<uint32_t>(bytes);
}

}  // namespace

Bbr::Bbr(const Start& start, uint32_t mss, uint32_t window) noexcept
    : mss_(mss), initial_window_(window), initial_delivered_(start.delivered), delivered_(start.delivered),
      next_round_delivered_(start.delivered), loss_round_delivered_(start.delivered), probe_rtt_window_(window), now_(start.now),
      min_rtt_(start.rtt), min_rtt_stamp_(start.now), extra_acked_since_(start.now), random_(start.seed) {
  rtt_seen_ = start.rtt != 0;
  init_pacing_rate(rtt_seen_ ? start.rtt : kMillisecond);
}

uint32_t Bbr::handle_ack(const RateSample& sample, uint32_t window) noexcept {
  now_ = sample.now;
  delivered_ = sample.total_delivered;
  if (cwnd_limited_ && reached(sample.total_delivered, cwnd_limited_until_ + 1)) cwnd_limited_ = false;
  if (sample.total_delivered - initial_delivered_ >= initial_window_) had_initial_window_ = true;
  round_start_ = loss_round_start_ = false;
  if (sample.has_record) {
    update_latest_signals(sample);
    update_congestion_signals(sample, window);
    update_ack_aggregation(sample, window);
    check_full_bw(sample);
    check_startup(sample);
    const bool drained = sample.in_flight <= inflight(1) || round_count_ - drain_start_round_ > 3;
    if (state_ == State::drain && drained) start_down();
    update_cycle(sample, window);
  }
  update_min_rtt(sample);
  window = check_probe_rtt(sample, window);
  if (loss_round_start_) {
    bw_latest_ = sample.delivery_rate;
    inflight_latest_ = sample.delivered;
  }
  bw_ = std::min(max_bw_.max(), bw_shortterm_);
  set_pacing_rate(pacing_gain());
  return set_window(sample, window);
}

// ---- the path model

void Bbr::update_latest_signals(const RateSample& sample) noexcept {
  bw_latest_ = std::max(bw_latest_, sample.delivery_rate);
  inflight_latest_ = std::max(inflight_latest_, sample.delivered);
  if (!reached(sample.prior_delivered, loss_round_delivered_)) return;
  loss_round_delivered_ = delivered_;
  loss_round_start_ = true;
}

void Bbr::update_congestion_signals(const RateSample& sample, uint32_t window) noexcept {
  if (reached(sample.prior_delivered, next_round_delivered_)) {
    start_round();
    ++round_count_;
    if (rounds_since_probe_up_ < 255) ++rounds_since_probe_up_;
    round_start_ = true;
  }
  const double rate = std::min(sample.delivery_rate, kBwMost);
  if (rate > 0 && (rate >= max_bw_.max() || !sample.app_limited)) max_bw_.update(rate);
  if (!loss_round_start_) return;
  adapt_lower_bounds(window);
  if (state_ != State::startup) {
    is_loss_in_round_ = false;
    lost_ranges_ = 0;
  }
}

// Lowers the short-term bounds to what the path delivers under loss, once per round trip.
void Bbr::adapt_lower_bounds(uint32_t window) noexcept {
  if (is_probing_bw() || !is_loss_in_round_) return;
  if (bw_shortterm_ == kInfinite) bw_shortterm_ = max_bw_.max();
  if (inflight_shortterm_ == kUnlimited) inflight_shortterm_ = window;
  bw_shortterm_ = std::max(bw_latest_, kBeta * bw_shortterm_);
  inflight_shortterm_ = std::max(inflight_latest_, volume(kBeta * inflight_shortterm_));
}

// Measures ACK aggregation: how much more is acknowledged at once than the bandwidth explains.
void Bbr::update_ack_aggregation(const RateSample& sample, uint32_t window) noexcept {
  double expected = bw_ * static_cast<double>(now_ - extra_acked_since_) / 1e9;
  if (static_cast<double>(extra_acked_delivered_) <= expected) {
    extra_acked_delivered_ = 0;
    extra_acked_since_ = now_;
    expected = 0;
  }
  extra_acked_delivered_ += sample.newly_acked;
  const uint32_t extra = std::min(volume(static_cast<double>(extra_acked_delivered_) - expected), window);
  extra_acked_.update(extra, round_count_, full_bw_reached_ ? kExtraAckedRounds : 1);
}

void Bbr::check_full_bw(const RateSample& sample) noexcept {
  if (full_bw_now_ || sample.app_limited || sample.delivery_rate <= 0) return;
  if (sample.delivery_rate >= full_bw_ * kBwGrowth) return reset_full_bw(sample.delivery_rate);
  if (!round_start_) return;
  full_bw_now_ = ++full_bw_count_ >= kPlateauRounds;
  if (full_bw_now_) full_bw_reached_ = true;
}

// Ends STARTUP when the rate stops growing, or when a recovery round loses too much in several ranges.
void Bbr::check_startup(const RateSample& sample) noexcept {
  if (state_ != State::startup) return;
  if (loss_round_start_) {
    const bool high = sample.sacks ? lost_ranges_ >= kStartupLostRanges && Losses::is_too_much(sample.lost, sample.tx_in_flight)
                                   : is_loss_in_round_;
    if (high && in_recovery_) {
      undo_state_ = Undo::startup;
      full_bw_reached_ = true;
      inflight_longterm_ = std::max(bdp(1), inflight_latest_);
    }
    is_loss_in_round_ = false;
    lost_ranges_ = 0;
  }
  if (full_bw_reached_) start_drain();
}

void Bbr::update_min_rtt(const RateSample& sample) noexcept {
  min_rtt_expired_ = now_ > min_rtt_stamp_ + kMinRttFilter;
  // Uses the present estimate, before a sample that a queue inflated replaces it.
  if (min_rtt_expired_ && state_ != State::probe_rtt) probe_rtt_window_ = std::max(bdp(0.5), least_window());
  if (sample.rtt == 0 || (min_rtt_ != 0 && sample.rtt >= min_rtt_ && !min_rtt_expired_)) return;
  min_rtt_ = sample.rtt;
  min_rtt_stamp_ = now_;
  if (rtt_seen_) return;
  rtt_seen_ = true;
  if (!full_bw_reached_) init_pacing_rate(min_rtt_);
}

void Bbr::note_loss(uint32_t window) noexcept {
  if (!is_loss_in_round_) {
    loss_round_delivered_ = delivered_;
    // In recovery, an undo returns to the state before the recovery, even if the round was new.
    if (!in_recovery_) save_upon_loss(window);
  }
  is_loss_in_round_ = true;
}

void Bbr::handle_losses(const Losses& losses, uint32_t window) noexcept {
  if (losses.ranges == 0) return;
  note_loss(window);
  lost_ranges_ = static_cast<uint8_t>(std::min<uint32_t>(lost_ranges_ + losses.ranges, 255));
  if (!is_bw_probe_sample_ || !losses.has_too_much) return;
  // InflightAtLoss(): how much of the flight fitted before the losses exceeded the threshold.
  const double before = static_cast<double>(losses.tx_in_flight) - losses.length;
  const double lost_before = static_cast<double>(losses.lost) - losses.length;
  const double prefix = std::max((Losses::kThreshold * before - lost_before) / (1 - Losses::kThreshold), 0.0);
  handle_too_high(volume(before + prefix), losses.app_limited, window);
}

void Bbr::handle_mark(uint32_t tx_in_flight, uint32_t window) noexcept {
  note_loss(window);
  if (state_ == State::startup) {
    full_bw_reached_ = true;
    inflight_longterm_ = std::max(bdp(1), inflight_latest_);
    start_drain();
  } else if (is_bw_probe_sample_) {
    handle_too_high(tx_in_flight, false, window);
  }
}

void Bbr::save_upon_loss(uint32_t window) noexcept {
  save_window(window);
  undo_state_ = Undo::none;
  undo_bw_shortterm_ = bw_shortterm_;
  undo_inflight_shortterm_ = inflight_shortterm_;
  undo_inflight_longterm_ = inflight_longterm_;
}

void Bbr::handle_recovery(uint32_t window) noexcept {
  save_upon_loss(window);
  in_recovery_ = true;
}

void Bbr::handle_timeout(uint32_t window, bool again) noexcept {
  if (again) return;
  save_upon_loss(window);
  in_recovery_ = true;
}

uint32_t Bbr::handle_recovered(uint32_t window) noexcept {
  in_recovery_ = false;
  return std::max(window, prior_window_);
}

uint32_t Bbr::handle_spurious(uint32_t window) noexcept {
  in_recovery_ = false;
  is_loss_in_round_ = false;
  reset_full_bw(0);
  bw_shortterm_ = std::max(bw_shortterm_, undo_bw_shortterm_);
  inflight_shortterm_ = std::max(inflight_shortterm_, undo_inflight_shortterm_);
  inflight_longterm_ = std::max(inflight_longterm_, undo_inflight_longterm_);
  if (undo_state_ == Undo::startup && state_ != State::startup) {
    full_bw_reached_ = false;
    if (state_ != State::probe_rtt) state_ = State::startup;
  } else if (undo_state_ == Undo::probe_bw_up && state_ != State::probe_bw_up) {
    if (state_ != State::probe_rtt) start_refill();
  }
  undo_state_ = Undo::none;
  return std::max(window, prior_window_);
}

void Bbr::reset_short_term() noexcept {
  bw_shortterm_ = kInfinite;
  inflight_shortterm_ = kUnlimited;
}

void Bbr::reset_full_bw(double rate) noexcept {
  full_bw_ = rate;
  full_bw_count_ = 0;
  full_bw_now_ = false;
}

void Bbr::reset_congestion_signals() noexcept {
  is_loss_in_round_ = false;
  lost_ranges_ = 0;
  bw_latest_ = 0;
  inflight_latest_ = 0;
}

uint32_t Bbr::handle_restart(uint32_t window, Nanoseconds now) noexcept {
  now_ = now;
  idle_restart_ = true;
  extra_acked_since_ = now;
  extra_acked_delivered_ = 0;
  if (in_probe_bw()) {
    set_pacing_rate(1);
  } else if (state_ == State::probe_rtt) {
    return check_probe_rtt_done(window);
  }
  return window;
}

// ---- the control parameters

double Bbr::pacing_gain() const noexcept {
  switch (state_) {
    case State::startup: return 2.77;
    case State::drain: return 0.5;
    case State::probe_bw_down: return 0.9;
    case State::probe_bw_up: return 1.25;
    case State::probe_bw_cruise:
    case State::probe_bw_refill:
    case State::probe_rtt: return 1;
  }
  return 1;
}

double Bbr::cwnd_gain() const noexcept {
  return state_ == State::probe_rtt ? 0.5 : state_ == State::probe_bw_up ? 2.25 : 2;
}

// The first rate: the initial window per RTT, times the gain, until the path is measured.
void Bbr::init_pacing_rate(Nanoseconds trip) noexcept {
  pacing_rate_ = std::min(pacing_gain() * initial_window_ * 1e9 / static_cast<double>(trip), kBwMost);
}

// Until the pipe is full, a lower rate sample does not reduce the pacing rate.
void Bbr::set_pacing_rate(double gain) noexcept {
  const double rate = gain * bw_ * kPacing;
  if (full_bw_reached_ || rate > pacing_rate_) pacing_rate_ = std::min(rate, kBwMost);
}

uint32_t Bbr::bdp(double gain) const noexcept {
  if (min_rtt_ == 0) return initial_window_;
  return volume(gain * bw_ * static_cast<double>(min_rtt_) / 1e9);
}

// At least three quanta: one being sent, one in flight, one being acknowledged.
uint32_t Bbr::quantize(uint32_t bytes) const noexcept {
  const uint32_t quantum = std::max(std::min(volume(pacing_rate_ / 1000), kQuantumMost), 2 * mss_);
  const uint32_t least = std::max(3 * quantum, least_window());
  return std::max(bytes, least) + (state_ == State::probe_bw_up ? 2 * mss_ : 0);
}

uint32_t Bbr::inflight_with_headroom() const noexcept {
  if (inflight_longterm_ == kUnlimited) return kUnlimited;
  const uint32_t headroom = std::max(mss_, volume(0.15 * inflight_longterm_));
  return std::max(inflight_longterm_ > headroom ? inflight_longterm_ - headroom : 0, least_window());
}

void Bbr::save_window(uint32_t window) noexcept {
  prior_window_ = !in_recovery_ && state_ != State::probe_rtt ? window : std::max(prior_window_, window);
}

uint32_t Bbr::set_window(const RateSample& sample, uint32_t window) noexcept {
  const uint32_t most = quantize(bdp(cwnd_gain()) + extra_acked_.max());
  if (full_bw_reached_) {
    window = std::min(window + sample.newly_acked, most);
  } else if (window < most || !had_initial_window_) {
    window += sample.newly_acked;
  }
  window = std::max(std::min(window, kVolumeMost), least_window());
  uint32_t cap = kUnlimited;
  if (state_ == State::probe_rtt || state_ == State::probe_bw_cruise) {
    cap = inflight_with_headroom();
  } else if (in_probe_bw()) {
    cap = inflight_longterm_;
  }
  if (state_ == State::probe_rtt) cap = std::min(cap, probe_rtt_window_);
  cap = std::max(std::min(cap, inflight_shortterm_), least_window());
  return std::min(window, cap);
}

}  // namespace unet::tcp
