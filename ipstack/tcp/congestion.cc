// congestion.cc - the windows of NewReno, CUBIC and DCTCP, and the choice between these and BBR.
#include "ipstack/tcp/congestion.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

namespace unet::tcp {
namespace {

constexpr float kC = 0.4f;          // RFC 9438, 5.1
constexpr float kCubicBeta = 0.7f;  // RFC 9438, 4.6
constexpr float kAlpha = 3 * (1 - kCubicBeta) / (1 + kCubicBeta);  // RFC 9438, 4.3
// HyStart++ constants (RFC 9406, 4.3).
constexpr uint64_t kMinRttThreshold = 4 * kMillisecond, kMaxRttThreshold = 16 * kMillisecond;
constexpr uint32_t kMinRttDivisor = 8, kRttSamples = 8, kCssGrowthDivisor = 4, kCssRounds = 5;
constexpr float kDctcpGain = 1.0f / 16;  // g of RFC 8257, 4.2
constexpr uint32_t kWindowMax = 1u << 30;
constexpr uint32_t kCountedUnit = 1u << 16;

}  // namespace

void Congestion::start(const Options& options, uint32_t mss, uint32_t window, const Bbr::Start& bbr) noexcept {
  drop_bbr();
  algorithm_ = options.congestion == Algorithm::bbr ? Algorithm::cubic : options.congestion;
  mss_ = static_cast<uint16_t>(mss);
  window_ = window;
  hystart_enabled_ = options.hystart;
  if (is_dctcp()) begin_dctcp();
  if (options.congestion == Algorithm::bbr) take_bbr(bbr);
}

bool Congestion::take_bbr(const Bbr::Start& bbr) noexcept {
  Bbr* const fresh = new (std::nothrow) Bbr(bbr, mss_, window_);
  if (fresh == nullptr) return false;
  algorithm_ = Algorithm::bbr;
  first_start_ = false;
  bbr_ = fresh;
  return true;
}

void Congestion::begin_dctcp() noexcept {
  algorithm_ = Algorithm::dctcp;
  first_start_ = false;
  dctcp_ = {};
}

void Congestion::drop_bbr() noexcept {
  if (!is_bbr()) return;
  delete bbr_;
  algorithm_ = Algorithm::cubic;
  cubic_ = {};
}

void Congestion::set_algorithm(Algorithm algorithm, const Bbr::Start& bbr) noexcept {
  if (algorithm == algorithm_) return;
  if (algorithm == Algorithm::bbr && take_bbr(bbr)) {
    threshold_ = ~uint32_t{0};
    return;
  }
  if (is_bbr()) {
    // BBR's window becomes ssthresh, where slow start ends.
    if (bbr_->state() != Bbr::State::startup) threshold_ = std::max<uint32_t>(window_, 2u * mss_);
    threshold_before_ = threshold_;
    drop_bbr();
  } else if (!first_start_) {
    cubic_ = {};
  }
  counted_ = 0;
  prior_ = prior_before_ = 0;
  if (algorithm == Algorithm::dctcp) return begin_dctcp();
  algorithm_ = algorithm == Algorithm::bbr ? Algorithm::cubic : algorithm;
}

void Congestion::resume(uint32_t window, uint32_t threshold) noexcept {
  if (is_bbr()) return;
  window_ = window;
  threshold_ = threshold;
  if (!in_slow_start()) end_first_start();
}

void Congestion::set_mss(uint16_t mss) noexcept {
  mss_ = mss;
  if (is_bbr()) bbr_->set_mss(mss);
}

void Congestion::end_first_start() noexcept {
  if (!first_start_) return;
  first_start_ = false;
  cubic_ = {};
}

// HyStart++ (RFC 9406, 4.2).
void Congestion::handle_round_trip(Sequence ack, Sequence sent, Nanoseconds rtt) noexcept {
  if (!first_start_ || !hystart_enabled_ || !in_slow_start()) return;
  HyStart& it = hystart_;
  if (!it.begun || ack > it.window_end) {
    it.begun = true;
    it.window_end = sent;
    it.last_round_min_rtt = it.current_round_min_rtt;
    it.current_round_min_rtt = ~uint32_t{0};
    it.rtt_sample_count = 0;
    if (it.rounds != 0 && ++it.rounds > kCssRounds) {
      threshold_ = window_;
      return end_first_start();
    }
  }
  if (rtt == 0) return;
  it.current_round_min_rtt = std::min(it.current_round_min_rtt, static_cast<uint32_t>(std::min<Nanoseconds>(rtt, ~uint32_t{0} - 1)));
  if (it.rtt_sample_count < kRttSamples && ++it.rtt_sample_count < kRttSamples) return;
  if (it.rounds != 0) {
    if (it.current_round_min_rtt < it.css_baseline_min_rtt) it.rounds = 0;  // the rise was jitter
    return;
  }
  if (it.last_round_min_rtt == ~uint32_t{0}) return;
  const uint64_t threshold = std::clamp<uint64_t>(it.last_round_min_rtt / kMinRttDivisor, kMinRttThreshold, kMaxRttThreshold);
  if (it.current_round_min_rtt < it.last_round_min_rtt + threshold) return;
  it.css_baseline_min_rtt = it.current_round_min_rtt;
  it.rounds = 1;
}

void Congestion::handle_ack(uint32_t bytes, uint32_t most, Nanoseconds rtt, Nanoseconds now) noexcept {
  if (in_slow_start()) {
    const uint32_t room = threshold_ - window_;
    const uint32_t grown = std::min(std::min(bytes, most) / (in_conservative_start() ? kCssGrowthDivisor : 1), room);
    window_ = std::min(window_ + grown, kWindowMax);
    if (grown < room || bytes <= grown) return;
    bytes -= grown;
  }
  end_first_start();
  if (algorithm_ == Algorithm::cubic) {
    grow_cubic(bytes, rtt, now);
  } else {
    grow_newreno(bytes);
  }
  window_ = std::min(window_, kWindowMax);
}

// RFC 8257, 3.3: once per window, the estimate takes a part of the share of bytes that were marked in it.
void Congestion::estimate_marks(uint32_t bytes, bool echo, Sequence ack, Sequence sent) noexcept {
  dctcp_.bytes_acked += bytes;
  if (echo) dctcp_.bytes_marked += bytes;
  if (dctcp_.bytes_acked == 0 || (dctcp_.begun && ack <= dctcp_.window_end)) return;
  const float share = static_cast<float>(dctcp_.bytes_marked) / static_cast<float>(dctcp_.bytes_acked);
  dctcp_.alpha += kDctcpGain * (share - dctcp_.alpha);
  dctcp_.bytes_acked = dctcp_.bytes_marked = 0;
  dctcp_.window_end = sent;
  dctcp_.begun = true;
}

// RFC 3465, 2.1: one segment per window of acknowledged bytes.
void Congestion::grow_newreno(uint32_t bytes) noexcept {
  counted_ += bytes;
  if (counted_ < window_) return;
  counted_ -= window_;
  window_ += mss_;
}

void Congestion::grow_cubic(uint32_t bytes, Nanoseconds rtt, Nanoseconds now) noexcept {
  const float window = segments(window_);
  if (cubic_.epoch_start == 0) {
    // RFC 9438, 4.8: after an RTO, or a slow start that ended without a loss, the plateau is the present window.
    cubic_.epoch_start = std::max<Nanoseconds>(now, 1);
    cubic_.w_est = window;
    if (cubic_.w_max < window) cubic_.w_max = window;
    cubic_.k = std::cbrt((cubic_.w_max - window) / kC);
    counted_ = 0;
    cubic_.grown_at = now;
  }
  const auto cubic = [&](Nanoseconds at) {
    const float past = static_cast<float>(at) / 1e9f - cubic_.k;
    return kC * past * past * past + cubic_.w_max;
  };
  // RFC 9438, 5.8: time in which the window did not limit the sender does not count.
  if (now - cubic_.grown_at > std::max(rtt, kMillisecond)) cubic_.epoch_start += now - cubic_.grown_at;
  cubic_.grown_at = now;
  const Nanoseconds t = now - cubic_.epoch_start;
  const float acked = segments(bytes);
  // RFC 9438, 4.3: W_est, the window of Reno with this reduction; it grows as Reno's once it reaches cwnd_prior.
  cubic_.w_est += (cubic_.w_est >= prior_ ? 1.0f : kAlpha) * acked / window;
  float grown;
  if (cubic(t) < cubic_.w_est) {
    grown = std::max(cubic_.w_est - window, 0.0f);
  } else {
    const float target = std::clamp(cubic(t + rtt), window, 1.5f * window);  // RFC 9438, 4.2
    grown = (target - window) / window * std::min(acked, window);
  }
  const auto bytes_grown = static_cast<uint64_t>(grown * static_cast<float>(mss_) * kCountedUnit) + counted_;
  window_ += static_cast<uint32_t>(bytes_grown / kCountedUnit);
  counted_ = bytes_grown % kCountedUnit;
}

void Congestion::handle_loss(uint32_t flight) noexcept {
  if (is_bbr()) return bbr_->handle_recovery(window_);
  end_first_start();
  counted_ = 0;
  threshold_before_ = threshold_;
  const float window = segments(window_);
  prior_before_ = std::exchange(prior_, window);
  if (algorithm_ != Algorithm::cubic) {
    threshold_ = std::max(flight / 2, 2u * mss_);  // RFC 5681, 3.1, equation 4
    return;
  }
  cubic_.w_max_before = cubic_.w_max;
  // RFC 9438, 4.6 and 4.7: fast convergence: a flow that has less than last time leaves room for others.
  cubic_.w_max = window < cubic_.w_max ? window * (1 + kCubicBeta) / 2 : window;
  cubic_.epoch_start = 0;
  threshold_ = std::max(static_cast<uint32_t>(static_cast<float>(flight) * kCubicBeta), 2u * mss_);
}

void Congestion::handle_recovered(bool fast) noexcept {
  if (is_bbr()) {
    window_ = bbr_->handle_recovered(window_);
  } else if (fast) {
    window_ = threshold_;
  }
}

void Congestion::handle_mark(uint32_t flight, uint32_t tx_in_flight) noexcept {
  if (is_bbr()) return bbr_->handle_mark(tx_in_flight, window_);
  handle_loss(flight);
  if (is_dctcp()) threshold_ = std::max(static_cast<uint32_t>(static_cast<float>(window_) * (1 - dctcp_.alpha / 2)), 2u * mss_);
  window_ = std::min(window_, threshold_);
}

void Congestion::handle_tail_loss() noexcept {
  if (is_bbr()) return bbr_->handle_tail_loss(window_);
  handle_loss(window_);
  window_ = threshold_;
}

void Congestion::handle_timeout(uint32_t flight, bool again) noexcept {
  if (is_bbr()) {
    bbr_->handle_timeout(window_, again);
    window_ = mss_;
    return;
  }
  // RFC 5681, 3.1: only the first RTO of a segment sets ssthresh.
  if (!again) {
    const uint32_t before = std::max(flight, threshold_);
    handle_loss(flight);
    threshold_before_ = before;
  }
  window_ = mss_;
  if (algorithm_ == Algorithm::cubic) cubic_.epoch_start = 0;
}

// CUBIC starts a new epoch: below the plateau, this continues the same curve.
void Congestion::undo_loss() noexcept {
  if (is_bbr()) {
    window_ = bbr_->handle_spurious(window_);
    return;
  }
  window_ = std::max(window_, static_cast<uint32_t>(prior_ * static_cast<float>(mss_)));
  threshold_ = std::max(threshold_, threshold_before_);
  prior_ = prior_before_;
  if (threshold_ == ~uint32_t{0} && !is_dctcp()) {
    first_start_ = true;  // the first slow start continues
    hystart_ = {};
    return;
  }
  if (algorithm_ != Algorithm::cubic) return;
  cubic_.w_max = std::max(cubic_.w_max_before, cubic_.w_max);
  cubic_.epoch_start = 0;
}

void Congestion::undo_timeout(uint32_t window) noexcept {
  if (is_bbr()) {
    window_ = bbr_->handle_spurious(window);
    return;
  }
  threshold_ = threshold_before_;
  window_ = window;
  if (algorithm_ != Algorithm::cubic) return;
  cubic_.w_max = cubic_.w_max_before;
  cubic_.epoch_start = 0;
}

void Congestion::handle_idle(uint32_t window) noexcept {
  if (is_bbr()) return;
  window_ = std::min(window_, window);
  if (!first_start_ && algorithm_ == Algorithm::cubic) cubic_.epoch_start = 0;
}

}  // namespace unet::tcp
