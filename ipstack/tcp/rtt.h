// rtt.h - the RTT estimator and the retransmission timeout (RFC 6298); used by Connection.
#pragma once

#include <algorithm>

#include "ipstack/tcp/options.h"
#include "unet/base/time.h"

namespace unet::tcp {

class RttEstimator {
 public:
  void start(Nanoseconds rto_first) noexcept { rto_ = units(rto_first); }

  // RTT sample: of data that was sent only once (Karn's algorithm), or from a timestamp echo.
  void handle_sample(Nanoseconds trip, const Options& options) noexcept {
    const uint32_t rtt = std::max(units(trip), 1u);
    least_ = least_ == 0 ? rtt : std::min(least_, rtt);
    if (smooth_ == 0) {
      smooth_ = rtt;  // 2.2
      variation_ = rtt / 2;
    } else {
      const uint64_t error = rtt > smooth_ ? rtt - smooth_ : smooth_ - rtt;  // 2.3
      variation_ = static_cast<uint32_t>((3 * uint64_t{variation_} + error) / 4);
      smooth_ = std::max(static_cast<uint32_t>((7 * uint64_t{smooth_} + rtt) / 8), 1u);
    }
    set_rto(options);
    backoff_ = 0;
  }
  // After start(): restores the estimator of a connection that was moved.
  void resume(Nanoseconds smooth, Nanoseconds variation, Nanoseconds least, uint8_t backoff, const Options& options) noexcept {
    smooth_ = units(smooth);
    variation_ = units(variation);
    least_ = units(least);
    if (smooth_ != 0) set_rto(options);
    backoff_ = std::min(backoff, kBackoffMax);
  }
  void back_off() noexcept { backoff_ = std::min(static_cast<uint8_t>(backoff_ + 1), kBackoffMax); }  // 5.5
  void forget_backoff() noexcept { backoff_ = 0; }
  // RFC 6298, 5.7: the SYN was lost.
  void raise(Nanoseconds rto) noexcept { rto_ = std::max(rto_, units(rto)); }

  Nanoseconds rto(const Options& options) const noexcept { return std::min((Nanoseconds{rto_} << kShift) << backoff_, options.rto_max); }
  Nanoseconds smooth() const noexcept { return Nanoseconds{smooth_} << kShift; }        // SRTT; 0: unknown
  Nanoseconds variation() const noexcept { return Nanoseconds{variation_} << kShift; }
  Nanoseconds least() const noexcept { return Nanoseconds{least_} << kShift; }          // 0: unknown
  uint32_t backoff() const noexcept { return backoff_; }

 private:
  static constexpr Nanoseconds kGranularity = kMillisecond;  // G: how precisely owners keep to next_timer()
  static constexpr int kShift = 4;  // units of 16 ns: 32 bits hold 68 s, longer RTTs are clamped
  static constexpr uint8_t kBackoffMax = 16;
  static constexpr uint32_t units(Nanoseconds time) noexcept {
    return static_cast<uint32_t>(std::min<Nanoseconds>(time >> kShift, ~uint32_t{0}));
  }

  // Like Linux and FreeBSD: the minimum applies to the variance term. Applied to the whole RTO, it would leave a long path no time for a
  // delayed ACK.
  void set_rto(const Options& options) noexcept {
    rto_ = units(std::min(smooth() + std::max({4 * variation(), kGranularity, options.rto_min}), options.rto_max));
  }

  uint32_t smooth_ = 0, variation_ = 0, rto_ = 0, least_ = 0;
  uint8_t backoff_ = 0;
};

}  // namespace unet::tcp
