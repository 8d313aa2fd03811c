// share.h - a user's share of the engine and the wires: its weight, its limits and its active endpoints; private to ni/engine.
//
// Used by the engine's thread alone, except `woken_apart_until`. A share is created when its user is first named, and stays as long as the
// engine: a user cannot lose a debt by reconnecting.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "ni/engine/send_limits.h"
#include "unet/base/eventfd_wake.h"
#include "unet/base/rate_limit.h"

namespace unet::engine {

struct EndpointState;

// A user's long wake-ups (eventfd_wake.h). An honest user has a few, as the time of a write includes interrupts. A few are forgiven, and a
// hundredth of the time pays for more.
class LongWakes {
 public:
  // 0, or the sum of long wake-ups that were not forgiven, which begins again at 0.
  Nanoseconds add(Nanoseconds took, Nanoseconds now) noexcept {
    const Nanoseconds paid = (now - since_) / kPart;
    since_ = now;
    if (paid >= debt_) debt_ = count_ = 0;
    else debt_ -= paid;
    debt_ += took;
    if (++count_ < kFew || debt_ < kMost) return 0;
    count_ = 0;
    return std::exchange(debt_, 0);
  }

 private:
  static constexpr uint64_t kPart = 100;
  static constexpr uint32_t kFew = 3;
  static constexpr Nanoseconds kMost = 2 * kMillisecond;
  Nanoseconds debt_ = 0, since_ = 0;
  uint32_t count_ = 0;
};

struct Share {
  // A lookup ends after three seconds: at most half of the neighbour cache (ip::NeighbourOptions).
  static constexpr uint32_t kNeighboursPerSecond = 64;
  static constexpr uint64_t kTimeParts = 1 << 16;
  // Time wraps after 2^48 bytes. It begins shortly before, so that every long run tests that.
  static constexpr uint64_t kTimeBegins = uint64_t{0} - (uint64_t{1} << 36);

  // Active endpoints, in order of their turns, without those that wait for a port or a limit.
  EndpointState* first = nullptr;
  EndpointState* last = nullptr;

  Share* next = nullptr;      // in the mux's list of shares with active endpoints, by time
  Share* previous = nullptr;
  bool active = false;        // is in that list
  bool deferred = false;      // not in that list until under its limit
  bool limited = false;       // it or its endpoints have a limit
  uint32_t watched = 0;       // its endpoints in the watched set
  uint64_t time = kTimeBegins;  // bytes sent, divided by its weight (mux.h)
  uint64_t pace = kTimeParts; // time per byte: kTimeParts / weight

  SendLimits limits;
  uint32_t terms = 0;         // counts changes of the limits, which endpoints compare when they are visited
  Prices endpoint_prices;
  Buckets buckets;
  EventfdWake wake;           // wake-ups by the engine's thread
  LongWakes long_wakes;       // their long ones
  std::atomic<Nanoseconds> woken_apart_until{0};  // until then, the wake thread wakes the user (wake.h)
  RateLimit neighbours{kNeighboursPerSecond};  // address lookups for the user

  void set_limits(const SendLimits& to, Nanoseconds now) noexcept {
    limits = to;
    ++terms;
    limited = to.any();
    buckets.set_prices({Price(to.messages), Price(to.bytes)}, now);
    endpoint_prices = {Price(to.endpoint_messages), Price(to.endpoint_bytes)};
  }
};

}  // namespace unet::engine
