// eventfd_wake.h - wakes a sleeper by its eventfd, and measures the cost for the waker; used by the engine and by local channels.
//
// The kernel walks the list of all waiters of the eventfd, in the waker's thread. The sleeper can make that list long: it can name its
// descriptor thousands of times in one poll().
#pragma once

#include <unistd.h>

#include <cstdint>
#include <ctime>

#include "unet/base/time.h"

namespace unet {

// Wakes the sleeper on an eventfd, which must not block.
inline void write_eventfd(int eventfd) noexcept {
  const uint64_t one = 1;
  static_cast<void>(!::write(eventfd, &one, sizeof one));
}

class EventfdWake {
 public:
  // A usual wake-up takes a few microseconds.
  static constexpr Nanoseconds kLong = 50 * kMicrosecond;

  // Writes the eventfd, which must not block. Returns the processor time of the write if that was long, else 0. The woken process may
  // preempt us during the write, so elapsed time alone proves nothing. A long write therefore only starts the measurement of processor
  // time, which costs two more system calls a write, for a thousand times as long. Unmeasured long writes take a thousandth of the time.
  Nanoseconds wake(int eventfd) noexcept {
    const Nanoseconds now = monotonic_now();
    const bool measures = now < measures_until_;
    const Nanoseconds begin = measures ? thread_now() : now;
    write_eventfd(eventfd);
    const Nanoseconds took = (measures ? thread_now() : monotonic_now()) - begin;
    if (took < kLong) [[likely]] return 0;
    measures_until_ = monotonic_now() + kMeasured * took;
    return measures ? took : 0;
  }

 private:
  static constexpr uint64_t kMeasured = 1000;
  Nanoseconds measures_until_ = 0;
};

}  // namespace unet
