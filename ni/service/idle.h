// idle.h - how an engine without work idles: it yields, then sleeps; used by Ni.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string_view>

#include "unet/base/result.h"
#include "unet/base/time.h"
#include "unet/mapping.h"

namespace unet::service {

enum class Idle {
  spin,      // never sleeps: lowest latency, a whole core
  adaptive,  // polls for spin_time after the last work, then sleeps
  block,     // sleeps as soon as there is no work
};

// Reads "spin", "adaptive" or "block". Errors: invalid_argument.
Result<Idle> parse_idle(std::string_view text);

// Gives the core to other runnable threads while polling finds nothing. Pollers that outnumber the cores must do so, or each waits for the
// end of the others' time slices. If a yield took long, another thread ran, and the next yield follows at once. Else it follows only after
// kEvery, because the call itself costs 0.3 - 0.5 us.
//
// A thread that polls without yielding keeps the core for a whole time slice of milliseconds. A thread that sleeps gets the core much
// sooner when it is woken. After such a yield, polling is not worth while for some time.
class Yielder {
 public:
  void idle(const Clock& clock, Nanoseconds now) noexcept {
    if (now < next_) return;
    sched_yield();
    const Nanoseconds after = clock.now();
    next_ = after - now > kTaken ? after : after + kEvery;
    if (after - now > kHogged) hogged_until_ = after + kAvoid;
  }
  bool hogged(Nanoseconds now) const noexcept { return now < hogged_until_; }

 private:
  static constexpr Nanoseconds kTaken = 3 * kMicrosecond;
  static constexpr Nanoseconds kEvery = 20 * kMicrosecond;
  static constexpr Nanoseconds kHogged = 200 * kMicrosecond;
  static constexpr Nanoseconds kAvoid = 20 * kMillisecond;
  Nanoseconds next_ = 0;
  Nanoseconds hogged_until_ = 0;
};

// The descriptors that end an engine's sleep. watch() and forget() may be called from another thread than sleep().
class Sleeper {
 public:
  static Result<Sleeper> create();

  // `edge`: one wake-up per write, no thread reads the descriptor (eventfds, wires). Else for as long as it is readable.
  Status watch(int descriptor, bool edge);
  void forget(int descriptor) noexcept;

  // Sleeps until a watched descriptor is ready or `timeout` has passed (~0: no limit). 1: a descriptor was ready; 0: none; -1: a signal
  // came.
  int sleep(Nanoseconds timeout) noexcept;

  int descriptor() const noexcept { return epoll_.get(); }

 private:
  Descriptor epoll_;
};

// The sleep of an engine with a wire that has no descriptor: 50 us after the last work, then doubled each time up to 5 ms. After a long
// idle time, frames of such a wire wait up to 5 ms, and the NI wakes 200 times a second.
class Nap {
 public:
  void reset() noexcept { next_ = kFirst; }
  Nanoseconds next() noexcept {
    const Nanoseconds now = next_;
    next_ = 2 * next_ < kLast ? 2 * next_ : kLast;
    return now;
  }

 private:
  static constexpr Nanoseconds kFirst = 50 * kMicrosecond;
  static constexpr Nanoseconds kLast = 5 * kMillisecond;
  Nanoseconds next_ = kFirst;
};

}  // namespace unet::service
