// challenge_limit.h - how many challenge ACKs a connection may send in this second (RFC 5961, 7); used by Connection and TimeWait.
#pragma once

#include "ipstack/tcp/counters.h"
#include "ipstack/tcp/options.h"

namespace unet::tcp {

// Each connection has its own limit: a shared one would leak information about other connections.
class ChallengeLimit {
 public:
  // Counts a challenge ACK; false: it must not be sent.
  bool take(Nanoseconds now, const Options& options, Counters& counters) noexcept {
    const auto second = static_cast<uint16_t>(now / kSecond);
    if (second != second_) count_ = 0;
    second_ = second;
    if (count_ >= options.challenges) {
      ++counters.unanswered;
      return false;
    }
    ++count_;
    ++counters.challenges;
    return true;
  }

 private:
  uint16_t second_ = 0;
  uint8_t count_ = 0;
};

}  // namespace unet::tcp
