// rtt.h - how long a round trip takes, and the retransmission time-out that follows from it (RFC 6298); used by Connection.
#pragma once

#include <algorithm>

#include "ipstack/tcp/options.h"
#include "unet/base/time.h"

namespace unet::tcp {

class RttEstimator {
 public:
  void start(Nanoseconds rto_first) noexcept { rto_ = rto_first; }

  // A round trip of what was sent once only (Karn), or that a timestamp has measured.
  void handle_sample(Nanoseconds rtt, const Options& options) noexcept {
    least_ = least_ == 0 ? std::max<Nanoseconds>(rtt, 1) : std::min(least_, std::max<Nanoseconds>(rtt, 1));
    if (smooth_ == 0) {
      smooth_ = std::max<Nanoseconds>(rtt, 1);  // 2.2
      variation_ = rtt / 2;
    } else {
      const Nanoseconds error = rtt > smooth_ ? rtt - smooth_ : smooth_ - rtt;  // 2.3
      variation_ = (3 * variation_ + error) / 4;
      smooth_ = std::max<Nanoseconds>((7 * smooth_ + rtt) / 8, 1);
    }
    rto_ = std::clamp(smooth_ + std::max<Nanoseconds>(4 * variation_, kGranularity), options.rto_min, options.rto_max);
    backoff_ = 0;
  }
  void back_off() noexcept { backoff_ = static_cast<uint8_t>(std::min(backoff_ + 1, 16)); }  // 5.5
  void forget_backoff() noexcept { backoff_ = 0; }
  // RFC 6298, 5.7: a SYN was lost.
  void raise(Nanoseconds rto) noexcept { rto_ = std::max(rto_, rto); }

  Nanoseconds rto(const Options& options) const noexcept { return std::min(rto_ << backoff_, options.rto_max); }
  Nanoseconds smooth() const noexcept { return smooth_; }      // SRTT; 0: not known yet
  Nanoseconds variation() const noexcept { return variation_; }
  Nanoseconds least() const noexcept { return least_; }        // 0: not known yet
  uint32_t backoff() const noexcept { return backoff_; }

 private:
  static constexpr Nanoseconds kGranularity = kMillisecond;  // G: how exactly owners keep to next_timer()

  Nanoseconds smooth_ = 0, variation_ = 0, rto_ = 0, least_ = 0;
  uint8_t backoff_ = 0;
};

}  // namespace unet::tcp
