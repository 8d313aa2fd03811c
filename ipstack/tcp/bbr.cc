// bbr.cc - BBR's path model, and the control parameters: pacing rate and window.
#include "ipstack/tcp/bbr.h"

#include <algorithm>

namespace unet::tcp {
namespace {

constexpr double kPacing = 0.99;            // 1 - BBR.PacingMarginPercent
constexpr uint8_t kStartupLostRanges = 6;   // BBRStartupFullLossCnt
constexpr double kBwMost = 1e12;            // faster than any link
constexpr uint32_t kVolumeMost = 1u << 30;  // more than any path holds
constexpr uint32_t kExtraAckedRounds = 10;
constexpr uint32_t kQuantumMost = 64 * 1024;

constexpr uint32_t volume(double bytes) noexcept {
  return bytes >= kVolumeMost ? kVolumeMost : bytes <= 0 ? 0 : static_cast<uint32_t>(bytes);
}

}  // namespace

Bbr::Bbr(const Start& start, uint32_t mss, uint32_t window) noexcept
    : now_(start.now), min_rtt_(start.rtt, start.now), round_(start.delivered), loss_round_(start.delivered), aggregation_(start.now),
      delivered_(start.delivered), mss_(mss), initial_window_(window), initial_delivered_(start.delivered), probe_rtt_window_(window),
      random_(start.seed) {
  init_pacing_rate(start.rtt != 0 ? start.rtt : kMillisecond);
}

uint32_t Bbr::handle_ack(const RateSample& sample, uint32_t window) noexcept {
  now_ = sample.now;
  delivered_ = sample.total_delivered;
  if (cwnd_limited_ && reached(sample.total_delivered, cwnd_limited_until_ + 1)) cwnd_limited_ = false;
  if (sample.total_delivered - initial_delivered_ >= initial_window_) had_initial_window_ = true;
  round_.clear();
  loss_round_.clear();
  if (sample.has_record) {
    update_congestion_signals(sample, window);
    aggregation_.update(sample.newly_acked, bw_, now_, window, round_count_, full_bw_.is_reached() ? kExtraAckedRounds : 1);
    if (!sample.app_limited) full_bw_.update(sample.delivery_rate, round_.begins());
    check_startup(sample);
    const bool drained = sample.in_flight <= inflight(1) || round_count_ - drain_start_round_ > 3;
    if (state_ == State::drain && drained) start_down();
    update_cycle(sample, window);
  }
  const bool expired = update_min_rtt(sample);
  window = check_probe_rtt(sample, expired, window);
  if (loss_round_.begins()) {
    signals_.bw_latest = sample.delivery_rate;
    signals_.inflight_latest = sample.delivered;
  }
  bw_ = std::min(max_bw_.max(), bounds_.bw_shortterm);
  set_pacing_rate(pacing_gain());
  return set_window(sample, window);
}

// ---- the path model

void Bbr::update_congestion_signals(const RateSample& sample, uint32_t window) noexcept {
  signals_.update(sample.delivery_rate, sample.delivered);
  loss_round_.update(sample.prior_delivered, delivered_);
  if (round_.update(sample.prior_delivered, delivered_)) {
    ++round_count_;
    if (rounds_since_probe_up_ < 255) ++rounds_since_probe_up_;
  }
  const double rate = std::min(sample.delivery_rate, kBwMost);
  if (rate > 0 && (rate >= max_bw_.max() || !sample.app_limited)) max_bw_.update(rate);
  if (!loss_round_.begins()) return;
  adapt_lower_bounds(window);
  if (state_ != State::startup) signals_.forget_losses();
}

// Lowers the short-term bounds to what the path delivers under loss, once per round trip.
void Bbr::adapt_lower_bounds(uint32_t window) noexcept {
  if (is_probing_bw() || !signals_.is_loss_in_round) return;
  if (bounds_.bw_shortterm == LossBounds::kInfinite) bounds_.bw_shortterm = max_bw_.max();
  if (bounds_.inflight_shortterm == kUnlimited) bounds_.inflight_shortterm = window;
  bounds_.bw_shortterm = std::max(signals_.bw_latest, kBeta * bounds_.bw_shortterm);
  bounds_.inflight_shortterm = std::max(signals_.inflight_latest, volume(kBeta * bounds_.inflight_shortterm));
}

// Ends STARTUP when the rate stops growing, or when a recovery round loses too much in several ranges.
void Bbr::check_startup(const RateSample& sample) noexcept {
  if (state_ != State::startup) return;
  if (loss_round_.begins()) {
    const bool high = sample.sacks ? signals_.lost_ranges >= kStartupLostRanges && Losses::is_too_much(sample.lost, sample.tx_in_flight)
                                   : signals_.is_loss_in_round;
    if (high && in_recovery_) {
      undo_state_ = Undo::startup;
      end_startup();
    }
    signals_.forget_losses();
  }
  if (full_bw_.is_reached()) start_drain();
}

// Losses, and not a plateau, show that the pipe is full.
void Bbr::end_startup() noexcept {
  full_bw_.set_reached(true);
  bounds_.inflight_longterm = std::max(bdp(1), signals_.inflight_latest);
}

// Returns whether the minimum had expired.
bool Bbr::update_min_rtt(const RateSample& sample) noexcept {
  const bool expired = min_rtt_.is_expired(now_);
  // Uses the present estimate, before a sample that a queue inflated replaces it.
  if (expired && state_ != State::probe_rtt) probe_rtt_window_ = std::max(bdp(0.5), least_window());
  if (min_rtt_.update(sample.rtt, now_) && !full_bw_.is_reached()) init_pacing_rate(sample.rtt);
  return expired;
}

void Bbr::note_loss(uint32_t window) noexcept {
  if (!signals_.is_loss_in_round) {
    loss_round_.start(delivered_);
    // In recovery, an undo returns to the state before the recovery, even if the round was new.
    if (!in_recovery_) save_upon_loss(window);
  }
  signals_.is_loss_in_round = true;
}

void Bbr::handle_losses(const Losses& losses, uint32_t window) noexcept {
  if (losses.ranges == 0) return;
  note_loss(window);
  signals_.add_ranges(losses.ranges);
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
    end_startup();
    start_drain();
  } else if (is_bw_probe_sample_) {
    handle_too_high(tx_in_flight, false, window);
  }
}

void Bbr::save_upon_loss(uint32_t window) noexcept {
  save_window(window);
  undo_state_ = Undo::none;
  undo_bounds_ = bounds_;
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
  signals_.is_loss_in_round = false;
  full_bw_.reset(0);
  bounds_.raise_to(undo_bounds_);
  if (undo_state_ == Undo::startup && state_ != State::startup) {
    full_bw_.set_reached(false);
    if (state_ != State::probe_rtt) state_ = State::startup;
  } else if (undo_state_ == Undo::probe_bw_up && state_ != State::probe_bw_up) {
    if (state_ != State::probe_rtt) start_refill();
  }
  undo_state_ = Undo::none;
  return std::max(window, prior_window_);
}

uint32_t Bbr::handle_restart(uint32_t window, Nanoseconds now) noexcept {
  now_ = now;
  idle_restart_ = true;
  aggregation_.restart(now);
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
  if (full_bw_.is_reached() || rate > pacing_rate_) pacing_rate_ = std::min(rate, kBwMost);
}

uint32_t Bbr::bdp(double gain) const noexcept {
  if (min_rtt_.rtt() == 0) return initial_window_;
  return volume(gain * bw_ * static_cast<double>(min_rtt_.rtt()) / 1e9);
}

// At least three quanta: one being sent, one in flight, one being acknowledged.
uint32_t Bbr::quantize(uint32_t bytes) const noexcept {
  const uint32_t quantum = std::max(std::min(volume(pacing_rate_ / 1000), kQuantumMost), 2 * mss_);
  const uint32_t least = std::max(3 * quantum, least_window());
  return std::max(bytes, least) + (state_ == State::probe_bw_up ? 2 * mss_ : 0);
}

uint32_t Bbr::inflight_with_headroom() const noexcept {
  const uint32_t most = bounds_.inflight_longterm;
  if (most == kUnlimited) return kUnlimited;
  const uint32_t headroom = std::max(mss_, volume(0.15 * most));
  return std::max(most > headroom ? most - headroom : 0, least_window());
}

void Bbr::save_window(uint32_t window) noexcept {
  prior_window_ = !in_recovery_ && state_ != State::probe_rtt ? window : std::max(prior_window_, window);
}

uint32_t Bbr::set_window(const RateSample& sample, uint32_t window) noexcept {
  const uint32_t most = quantize(bdp(cwnd_gain()) + aggregation_.extra());
  if (full_bw_.is_reached()) {
    window = std::min(window + sample.newly_acked, most);
  } else if (window < most || !had_initial_window_) {
    window += sample.newly_acked;
  }
  window = std::max(std::min(window, kVolumeMost), least_window());
  uint32_t cap = kUnlimited;
  if (state_ == State::probe_rtt || state_ == State::probe_bw_cruise) {
    cap = inflight_with_headroom();
  } else if (in_probe_bw()) {
    cap = bounds_.inflight_longterm;
  }
  if (state_ == State::probe_rtt) cap = std::min(cap, probe_rtt_window_);
  cap = std::max(std::min(cap, bounds_.inflight_shortterm), least_window());
  return std::min(window, cap);
}

}  // namespace unet::tcp
