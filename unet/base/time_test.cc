// time_test.cc - clocks never run backwards, and agree with each other.
#include "unet/base/time.h"

#include <catch2/catch.hpp>
#include <ctime>

namespace unet::time_test {
namespace {

TEST_CASE("monotonic_now is CLOCK_MONOTONIC in nanoseconds") {
  const auto kernel = [] {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<Nanoseconds>(t.tv_sec) * kSecond + static_cast<Nanoseconds>(t.tv_nsec);
  };
  for (int i = 0; i < 1000; ++i) {
    const Nanoseconds before = kernel();
    const Nanoseconds ours = monotonic_now();
    const Nanoseconds after = kernel();
    REQUIRE((before <= ours && ours <= after));
  }
}

TEST_CASE("wall_now is the time since 1970, of which wall_sixteenths are sixteenths") {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  const Nanoseconds before = static_cast<Nanoseconds>(t.tv_sec) * kSecond, ours = wall_now();
  CHECK((before <= ours && ours < before + kSecond * 60));
  const uint32_t sixteenths = wall_sixteenths();
  CHECK(sixteenths - static_cast<uint32_t>(ours / (kSecond / 16)) < 16 * 60);
}

TEST_CASE("the cycle counter and the clock made of it never run backwards") {
  const Clock clock;
  CHECK(cycles_per_second() > 0);
  CHECK(cycles_per_second() == cycles_per_second());
  Nanoseconds last = 0;
  uint64_t last_cycles = cycles();
  bool forward = true;
  for (int i = 0; i < 100'000; ++i) {
    const Nanoseconds now = clock.now();
    const uint64_t now_cycles = cycles();
    forward = forward && now >= last && now_cycles >= last_cycles;
    last = now;
    last_cycles = now_cycles;
  }
  CHECK(forward);
  CHECK(last > 0);
}

}  // namespace
}  // namespace unet::time_test
