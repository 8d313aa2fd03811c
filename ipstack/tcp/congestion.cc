// congestion.cc - NewReno's and CUBIC's windows.
#include "ipstack/tcp/congestion.h"

#include <algorithm>
#include <cmath>

namespace unet::tcp {
namespace {

constexpr float kC = 0.4f;         // RFC 9438, 5.1
constexpr float kBeta = 0.7f;      // RFC 9438, 4.6
constexpr float kAlpha = 3 * (1 - kBeta) / (1 + kBeta);  // RFC 9438, 4.3
constexpr uint32_t kWindowMax = 1u << 30;

}  // namespace

void Congestion::start(const Options& options, uint32_t mss, uint32_t window) noexcept {
  algorithm_ = options.congestion;
  mss_ = static_cast<uint16_t>(mss);
  window_ = window;
}

void Congestion::handle_ack(uint32_t bytes, uint32_t most, Nanoseconds rtt, Nanoseconds now) noexcept {
  if (in_slow_start()) {
    const uint32_t room = threshold_ - window_;
    const uint32_t grown = std::min({bytes, most, room});
    window_ = std::min(window_ + grown, kWindowMax);
    if (grown < room || bytes <= grown) return;
    bytes -= grown;
  }
  if (algorithm_ == Algorithm::newreno) {
    grow_newreno(bytes);
  } else {
    grow_cubic(bytes, rtt, now);
  }
  window_ = std::min(window_, kWindowMax);
}

// RFC 3465, 2.1: one segment for each window that has been acknowledged.
void Congestion::grow_newreno(uint32_t bytes) noexcept {
  counted_ += bytes;
  if (counted_ < window_) return;
  counted_ -= window_;
  window_ += mss_;
}

void Congestion::grow_cubic(uint32_t bytes, Nanoseconds rtt, Nanoseconds now) noexcept {
  const float window = segments(window_);
  if (epoch_start_ == 0) {
    // RFC 9438, 4.8: after a time-out, or slow start that ended without a loss, the plateau is where we are.
    epoch_start_ = std::max<Nanoseconds>(now, 1);
    w_est_ = window;
    if (w_max_ < window) w_max_ = window;
    k_ = std::cbrt((w_max_ - window) / kC);
    fraction_ = 0;
    grown_at_ = now;
  }
  const auto cubic = [&](Nanoseconds at) {
    const float past = static_cast<float>(at) / 1e9f - k_;
    return kC * past * past * past + w_max_;
  };
  // RFC 9438, 5.8: the time in which the window was not what held the sender back does not count.
  if (now - grown_at_ > std::max(rtt, kMillisecond)) epoch_start_ += now - grown_at_;
  grown_at_ = now;
  const Nanoseconds t = now - epoch_start_;
  const float acked = segments(bytes);
  // RFC 9438, 4.3: what NewReno would have with this reduction; like NewReno once it has what there was before.
  w_est_ += (w_est_ >= cwnd_prior_ ? 1.0f : kAlpha) * acked / window;
  float grown;
  if (cubic(t) < w_est_) {
    grown = std::max(w_est_ - window, 0.0f);
  } else {
    const float target = std::clamp(cubic(t + rtt), window, 1.5f * window);  // RFC 9438, 4.2
    grown = (target - window) / window * std::min(acked, window);
  }
  fraction_ += grown * static_cast<float>(mss_);
  const auto whole = static_cast<uint32_t>(fraction_);
  window_ += whole;
  fraction_ -= static_cast<float>(whole);
}

void Congestion::handle_loss(uint32_t flight) noexcept {
  counted_ = 0;
  if (algorithm_ == Algorithm::newreno) {
    threshold_ = std::max(flight / 2, 2u * mss_);  // RFC 5681, 3.1, equation 4
    return;
  }
  // RFC 9438, 4.6 and 4.7: who has less than last time makes room for others.
  const float window = segments(window_);
  cwnd_prior_ = window;
  w_max_ = window < w_max_ ? window * (1 + kBeta) / 2 : window;
  epoch_start_ = 0;
  threshold_ = std::max(static_cast<uint32_t>(static_cast<float>(flight) * kBeta), 2u * mss_);
}

void Congestion::handle_timeout(uint32_t flight, bool again) noexcept {
  // RFC 5681, 3.1: for the first time-out of a segment only.
  if (!again) handle_loss(flight);
  window_ = mss_;
  if (algorithm_ == Algorithm::cubic) epoch_start_ = 0;
}

void Congestion::handle_idle(uint32_t window) noexcept {
  window_ = std::min(window_, window);
  epoch_start_ = 0;
}

}  // namespace unet::tcp
