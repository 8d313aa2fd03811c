// time.h - time for the data path: nanoseconds of a monotonic clock, read from the cycle counter.
#pragma once

#include <cstdint>
#include <ctime>

namespace unet {

// Nanoseconds since an arbitrary start. The time is virtual in simulations: protocols take it as an argument and never read a clock.
using Nanoseconds = uint64_t;

constexpr Nanoseconds kMicrosecond = 1'000;
constexpr Nanoseconds kMillisecond = 1'000'000;
constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr Nanoseconds kNever = ~Nanoseconds{0};

// The time `after` from `now`; kNever if no clock gets there.
constexpr Nanoseconds deadline_after(Nanoseconds now, Nanoseconds after) noexcept { return after < kNever - now ? now + after : kNever; }

// A duration in the form that system calls take.
inline timespec timespec_of(Nanoseconds time) noexcept {
  return {.tv_sec = static_cast<time_t>(time / kSecond), .tv_nsec = static_cast<long>(time % kSecond)};
}

inline Nanoseconds read_clock(clockid_t clock) noexcept {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_nsec);
}

// Reads CLOCK_MONOTONIC in nanoseconds (takes about 20 ns).
Nanoseconds monotonic_now() noexcept;

// Reads the processor time of this thread (takes about 200 ns).
inline Nanoseconds thread_now() noexcept { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

// Reads the cycle counter (takes about 8 ns); monotonic_now() on machines without one.
inline uint64_t cycles() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();  // a builtin, as elsewhere in the tree, because <x86intrin.h> has 2 MB
#else
  return monotonic_now();
#endif
}

// Cycles per second of cycles(), measured against CLOCK_MONOTONIC once per process (takes 2 ms the first time).
double cycles_per_second() noexcept;

// Nanoseconds since 1970, for people and programs to read. Do not measure with it.
Nanoseconds wall_now() noexcept;

// Sixteenths of a second since 1970, modulo 2^32. A later instance of a program on a host gets a larger number, also after a reboot, in the
// sense of serial numbers (RFC 1982).
uint32_t wall_sixteenths() noexcept;

// Tells the core that this is a spin loop.
inline void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Converts cycles() to Nanoseconds: create one per thread, outside the data path.
class Clock {
 public:
  Clock() noexcept : scale_(static_cast<uint64_t>(1e9 / cycles_per_second() * kUnit)), start_(cycles()) {}
  Nanoseconds now() const noexcept {
    return static_cast<Nanoseconds>(static_cast<unsigned __int128>(cycles() - start_) * scale_ >> kScaleBits);
  }

 private:
  static constexpr int kScaleBits = 32;
  static constexpr double kUnit = uint64_t{1} << kScaleBits;

  uint64_t scale_;  // nanoseconds per cycle, times kUnit
  uint64_t start_;
};

}  // namespace unet
