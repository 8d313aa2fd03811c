// eventfd_wake.h - wakes a sleeper by its eventfd, and knows what that costs the waker; used by the engine and by local channels.
//
// The kernel walks all that waits for the eventfd, in the waker's thread. The sleeper can make that list long: it lists its
// descriptor in one poll() thousands of times.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <ctime>

#include "unet/base/time.h"

namespace unet {

class EventfdWake {
 public:
  // What a usual wake-up takes is a few microseconds.
  static constexpr Nanoseconds kLong = 50 * kMicrosecond;

  // Writes the eventfd, which must not block. Returns the processor time that it took if that was long, else 0. The woken
  // process may preempt us in the midst of it. So one long write only has the processor time of the next ones measured: two more system
  // calls for each.
  Nanoseconds wake(int eventfd) noexcept {
    const Nanoseconds begin = measured_ != 0 ? thread_time() : monotonic_now();
    const uint64_t one = 1;
    static_cast<void>(!::write(eventfd, &one, sizeof one));
    const Nanoseconds took = (measured_ != 0 ? thread_time() : monotonic_now()) - begin;
    if (took < kLong) [[likely]] {
      if (measured_ != 0) --measured_;
      return 0;
    }
    const bool known = measured_ != 0;
    measured_ = kMeasured;
    return known ? took : 0;
  }

 private:
  static Nanoseconds thread_time() noexcept {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_nsec);
  }

  static constexpr uint32_t kMeasured = 64;
  uint32_t measured_ = 0;  // further writes whose processor time is measured
};

}  // namespace unet
