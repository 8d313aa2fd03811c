// congestion.cc - delays, losses and silence in, a window out; used by Flow.
#include "am/congestion.h"

#include <algorithm>
#include <cmath>

namespace unet::am {
namespace {

constexpr Nanoseconds kPeriod = 5 * kSecond;  // the least round trip covers the last one or two periods: a wire may change
constexpr uint64_t kLossSample = 64;          // packets over which losses are counted
constexpr Nanoseconds kFullQueue = 3;         // budgets for a queue: losses at this delay mean a queue that overflows
constexpr double kGrowthMax = 0.125;          // most growth in a round trip, as a fraction of the window

}  // namespace

Congestion::Congestion(const CongestionOptions& options) noexcept
    : options_(options), packet_(options.packet), window_(options.no_wire ? options.window_max : options.first_window), step_(packet_) {}

Nanoseconds Congestion::target() const noexcept {
  const Nanoseconds base = this->base();
  const double queue = std::max(static_cast<double>(options_.budget_min), options_.budget * static_cast<double>(base));
  const double small = std::min(options_.flow_budget, 1.0 / std::sqrt(std::max(window_ / packet_, 1e-6)));
  return base + static_cast<Nanoseconds>(queue + small * static_cast<double>(options_.budget_min));
}

// Caches the target, which seldom changes: computing it takes a root and two divisions.
Nanoseconds Congestion::target_now() noexcept {
  if (target_base_ != base() || target_window_ != window_) {
    target_ = target();
    target_base_ = base();
    target_window_ = window_;
  }
  return target_;
}

// An absence leaves only two bounds for the true round trip. The estimate inside these bounds is then the smoothed round trip.
void Congestion::note_delay(Nanoseconds delay, Nanoseconds absence, Nanoseconds now) noexcept {
  const bool sure = absence <= delay / 2;
  if (smooth_ == 0 || (unsure_ && sure)) {
    smooth_ = delay;
    variation_ = delay / 2;
    unsure_ = !sure;
  } else {
    const Nanoseconds least = delay - std::min(absence, delay);
    const Nanoseconds trip = std::clamp(smooth_, least, delay);
    const Nanoseconds off = trip > smooth_ ? trip - smooth_ : smooth_ - trip;
    variation_ = (3 * variation_ + off) / 4;
    smooth_ = (7 * smooth_ + trip) / 8;
  }
  if (now >= period_end_) {
    period_least_ = {period_least_[1], delay};
    period_end_ = now + kPeriod;
  }
  period_least_[1] = std::min(period_least_[1], delay);
  least_ = period_least_[0] == 0 ? period_least_[1] : std::min(period_least_[0], period_least_[1]);
}

void Congestion::decrease(double factor, Nanoseconds now) noexcept {
  if (options_.no_wire) return;
  window_ = std::max(window_ * factor, options_.window_min * packet_);
  decreased_at_ = now;
  starting_ = false;
  step_ = packet_;
  round_ = 0;
}

// Grows the window by one packet per round trip. The step doubles after each round trip without a queue: no other flow can be there then.
void Congestion::grow(uint32_t bytes, uint64_t in_flight, bool empty) noexcept {
  if (window_ < packet_) {
    window_ += packet_;  // the pause between packets is the limit, whatever their size
  } else if (static_cast<double>(2 * in_flight) < window_) {
    return;  // the window was not the limit, so nothing shows that a larger one is good
  } else if (starting_) {
    window_ += bytes;
  } else {
    if (!empty) {
      step_ = packet_;
      round_ = 0;
    } else if ((round_ += bytes) >= window_) {
      step_ = std::max(packet_, std::min(2 * step_, kGrowthMax * window_));
      round_ = 0;
    }
    window_ += step_ * bytes / window_;
  }
  window_ = std::min(window_, static_cast<double>(options_.window_max));
}

void Congestion::handle_ack(uint32_t bytes, uint64_t in_flight, Nanoseconds delay, Nanoseconds absence, Nanoseconds now) noexcept {
  note_delay(delay, absence, now);
  const Nanoseconds most = target_now();
  const bool looked = delay < most;
  const bool empty = delay < base() + (most - base()) / 2;  // surely no queue: the delay is short even with the absence in it
  delay -= std::min(absence, delay);
  last_ = delay;
  if (before_silence_ != 0) {
    // Absence explains the silence, so the wire was not at fault.
    if (!looked && delay < most) window_ = std::max(window_, before_silence_);
    before_silence_ = 0;
  }
  if (delay < most) {
    grow(bytes, in_flight, empty);
  } else if (may_decrease(now)) {
    const double excess = static_cast<double>(delay - most) / static_cast<double>(delay);
    decrease(std::max(1.0 - options_.decrease * excess, 1.0 - options_.decrease_max), now);
  }
}

void Congestion::handle_loss(uint64_t sent, Nanoseconds now) noexcept {
  ++losses_;
  const uint64_t of = sent < counted_from_ ? 0 : sent - counted_from_;
  if (of < kLossSample) return;
  const bool many = static_cast<double>(losses_) > options_.loss_tolerated * static_cast<double>(of);
  losses_ = 0;
  counted_from_ = sent;
  if (many || last_ > base() + kFullQueue * (target() - base())) decrease_for_loss(now);
}

void Congestion::handle_silence(uint32_t times, Nanoseconds now) noexcept {
  // Fewer time-outs may be one lost packet with none behind it. More mean that the path is full or gone, or that the peer does not poll.
  if (times < 2) return;
  if (before_silence_ == 0) before_silence_ = window_;
  decrease_for_loss(now);
}

// Losses never shrink the window below one packet: only a delay shows that one packet is too much.
void Congestion::decrease_for_loss(Nanoseconds now) noexcept {
  if (window_ <= packet_ || !may_decrease(now)) return;
  decrease(std::max(1.0 - options_.decrease_max, packet_ / window_), now);
}

void Congestion::handle_sent(Nanoseconds now) noexcept {
  next_send_before_ = next_send_;
  if (window_ >= packet_) return;
  // Paces by the round trip of a wire that is as full as it should be. By the measured round trip, a peer that is busy for milliseconds
  // would look like a queue of that length, and be asked again only after a hundred times as long.
  next_send_ = now + static_cast<Nanoseconds>(static_cast<double>(target()) * packet_ / window_);
}

}  // namespace unet::am
