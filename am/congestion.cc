// congestion.cc - delays, losses and silence in, a window out; used by Flow.
#include "am/congestion.h"

#include <algorithm>
#include <cmath>

namespace unet::am {
namespace {

constexpr Nanoseconds kPeriod = 5 * kSecond;  // the least round trip is of the last one or two: a wire may change
constexpr uint64_t kLossSample = 64;          // packets of which losses are counted together
constexpr Nanoseconds kFullQueue = 3;         // budgets for a queue: losses at so much delay are a queue's that overflows
constexpr double kGrowthMax = 0.125;          // of the window, in a round trip

}  // namespace

Congestion::Congestion(const CongestionOptions& options) noexcept
    : options_(options), packet_(options.packet), window_(options.no_wire ? options.window_max : options.first_window), step_(packet_) {}

Nanoseconds Congestion::target() const noexcept {
  const Nanoseconds base = this->base();
  const double queue = std::max(static_cast<double>(options_.budget_min), options_.budget * static_cast<double>(base));
  const double small = std::min(options_.flow_budget, 1.0 / std::sqrt(std::max(window_ / packet_, 1e-6)));
  return base + static_cast<Nanoseconds>(queue + small * static_cast<double>(options_.budget_min));
}

// It seldom changes, and takes a root and two divisions.
Nanoseconds Congestion::target_now() noexcept {
  if (target_base_ != base() || target_window_ != window_) {
    target_ = target();
    target_base_ = base();
    target_window_ = window_;
  }
  return target_;
}

// What is known of a round trip in which nobody looked for a while is between what two bounds it lay: it is taken to be what was expected.
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

// By one packet in a round trip; by twice as many after each in which there was no queue to speak of, as nobody else can be there then.
void Congestion::grow(uint32_t bytes, uint64_t in_flight, bool empty) noexcept {
  if (window_ < packet_) {
    window_ += packet_;  // it is the pause between packets that limits, however small they are
  } else if (static_cast<double>(2 * in_flight) < window_) {
    return;  // it was not the window that limited: a larger one is not known to be good
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
  const bool empty = delay < base() + (most - base()) / 2;  // without doubt: not only if absence explains the delay
  delay -= std::min(absence, delay);
  last_ = delay;
  if (before_silence_ != 0) {
    // It was not the wire that was silent.
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
  // One time-out may be a lost packet with nothing behind it. Two in a row say that the way is full, or gone; or nobody looks there.
  if (times < 2) return;
  if (before_silence_ == 0) before_silence_ = window_;
  decrease_for_loss(now);
}

// Never below one packet: only delays tell that even that is too much.
void Congestion::decrease_for_loss(Nanoseconds now) noexcept {
  if (window_ <= packet_ || !may_decrease(now)) return;
  decrease(std::max(1.0 - options_.decrease_max, packet_ / window_), now);
}

void Congestion::handle_sent(Nanoseconds now) noexcept {
  next_send_before_ = next_send_;
  if (window_ >= packet_) return;
  // Measured in the round trips of a wire that is as full as it should be: with those that there are, a peer that is busy for milliseconds
  // with something else would be taken for a queue of that length, and asked again only after a hundred times as long.
  next_send_ = now + static_cast<Nanoseconds>(static_cast<double>(target()) * packet_ / window_);
}

}  // namespace unet::am
