// rate_limit.h - a token bucket, with a rate per second that is also its depth; used for work that others can cause.
#pragma once

#include <algorithm>
#include <cstdint>

#include "unet/base/time.h"

namespace unet {

class RateLimit {
 public:
  explicit RateLimit(uint32_t per_second, Nanoseconds now = 0) noexcept : per_second_(per_second), left_(per_second), at_(now) {}

  // Takes a token. Returns false if there is none.
  bool take(Nanoseconds now) noexcept {
    if (per_second_ == 0) return false;
    const Nanoseconds each = kSecond / per_second_;
    if (const uint64_t earned = (now - at_) / each; earned != 0) {
      left_ = static_cast<uint32_t>(std::min<uint64_t>(per_second_, left_ + earned));
      at_ += earned * each;
    }
    if (left_ == 0) return false;
    --left_;
    return true;
  }

 private:
  uint32_t per_second_, left_;
  Nanoseconds at_;
};

}  // namespace unet
