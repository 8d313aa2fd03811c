// send_limits.h - rates of a user and its endpoints, and the token buckets that enforce them; used by the mux.
//
// A bucket is one time (generic cell rate algorithm, ITU-T I.371): when all that was sent would have been sent at the exact rate. A sender
// may send while that is ahead of the clock by less than the burst. The last message may overdraw, and is paid for later. Nothing is
// refilled, so an idle bucket costs nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "unet/base/time.h"

namespace unet::engine {

// Rates per second; 0: no limit. Local channels bypass the NI, and so the limits.
struct SendLimits {
  uint64_t messages = 0, bytes = 0;                    // limits of all endpoints of the user together
  uint64_t endpoint_messages = 0, endpoint_bytes = 0;  // limits of each endpoint
  Nanoseconds burst = 10 * kMillisecond;               // credit of an idle sender, as time

  bool any() const noexcept { return (messages | bytes | endpoint_messages | endpoint_bytes) != 0; }
  bool operator==(const SendLimits&) const = default;
};
constexpr uint64_t kSendRateMax = 1'000'000'000'000;  // per second

// Time per unit.
class Price {
 public:
  Price() = default;
  explicit Price(uint64_t rate) noexcept : cost_(rate == 0 ? 0 : (uint64_t{1'000'000'000} << kShift) / rate) {}

 private:
  friend class Bucket;
  static constexpr uint32_t kShift = 20;  // 2^20 parts of a nanosecond
  uint64_t cost_ = 0;
};

class Bucket {
 public:
  // When the bucket has room; in the past: now.
  Nanoseconds room_at(Nanoseconds burst) const noexcept { return price_.cost_ == 0 || paid_until_ < burst ? 0 : paid_until_ - burst; }

  void take(uint64_t units, Nanoseconds now) noexcept {
    const uint64_t cost = units * price_.cost_ + rest_;
    rest_ = cost & ((uint64_t{1} << Price::kShift) - 1);
    paid_until_ = std::max(paid_until_, now) + (cost >> Price::kShift);
  }
  // A debt keeps its number of units, also while there is no limit: a user must not lose it by changing between limits.
  void set_price(Price price, Nanoseconds now) noexcept {
    const uint64_t cost = price.cost_;
    if (cost != 0 && cost != debt_cost_) {
      if (debt_cost_ != 0 && paid_until_ > now) {
        const __uint128_t debt = static_cast<__uint128_t>(paid_until_ - now) * cost / debt_cost_;
        paid_until_ = now + static_cast<Nanoseconds>(std::min<__uint128_t>(debt, kDebtMax));
      }
      debt_cost_ = cost;
    }
    price_ = price;
  }

 private:
  static constexpr Nanoseconds kDebtMax = kNever / 4;

  Nanoseconds paid_until_ = 0;
  uint64_t rest_ = 0;       // fraction of a nanosecond
  Price price_;
  uint64_t debt_cost_ = 0;  // the last price that was not 0: paid_until_ is in its units
};

struct Prices {
  Price messages, bytes;
};
struct Buckets {
  Bucket messages, bytes;

  Nanoseconds room_at(Nanoseconds burst) const noexcept { return std::max(messages.room_at(burst), bytes.room_at(burst)); }
  void set_prices(const Prices& prices, Nanoseconds now) noexcept {
    messages.set_price(prices.messages, now);
    bytes.set_price(prices.bytes, now);
  }
};

}  // namespace unet::engine
