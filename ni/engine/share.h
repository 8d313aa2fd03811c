// share.h - a user's share of the engine and the wires: its weight, its limits and its endpoints in turn; private to ni/engine.
//
// The engine's thread alone uses it, but for `woken_apart_until`. A share is made when its user is first named and stays as
// long as the engine, so that nobody gets rid of a debt by leaving and coming again.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "ni/engine/send_limits.h"
#include "unet/base/eventfd_wake.h"
#include "unet/base/rate_limit.h"

namespace unet::engine {

struct EndpointState;

// A user's long wake-ups (eventfd_wake.h). An honest user has a few: the processor time of a write has interrupts in it that came
// meanwhile. So a few of them are forgiven, and a hundredth of the time pays for more.
class LongWakes {
 public:
  // 0, or the time of those that were too long together, from which on they are counted anew.
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
  // A question ends after three seconds: at most half of the places that there are (ip::NeighbourOptions).
  static constexpr uint32_t kNeighboursPerSecond = 64;
  static constexpr uint64_t kTimeParts = 1 << 16;
  // Time wraps, after 2^48 bytes. It begins shortly before, so that every long run goes through that.
  static constexpr uint64_t kTimeBegins = uint64_t{0} - (uint64_t{1} << 36);

  // Active endpoints in turn. Those that wait for a port or for their limit are not among them.
  EndpointState* first = nullptr;
  EndpointState* last = nullptr;

  Share* next = nullptr;      // in the mux's list of shares with active endpoints, by time
  Share* previous = nullptr;
  bool active = false;        // is in that list
  bool deferred = false;      // is kept out of it until its limit has room
  bool limited = false;       // any limit, its own or of its endpoints
  uint32_t watched = 0;       // of its endpoints, places in the watched set
  uint64_t time = kTimeBegins;  // what it has sent, divided by its weight (mux.h)
  uint64_t pace = kTimeParts; // of a byte: kTimeParts / weight

  SendLimits limits;
  uint32_t terms = 0;         // counts changes of the limits, which each endpoint takes over when it is served
  Prices endpoint_prices;
  Buckets buckets;
  EventfdWake wake;           // by the engine's thread,
  LongWakes long_wakes;       // and
  std::atomic<Nanoseconds> woken_apart_until{0};  // before that, by another (wake.h)
  RateLimit neighbours{kNeighboursPerSecond};  // that it makes us ask for, on links with IP

  void set_limits(const SendLimits& to, Nanoseconds now) noexcept {
    limits = to;
    ++terms;
    limited = to.any();
    buckets.set_prices({Price(to.messages), Price(to.bytes)}, now);
    endpoint_prices = {Price(to.endpoint_messages), Price(to.endpoint_bytes)};
  }
};

}  // namespace unet::engine
