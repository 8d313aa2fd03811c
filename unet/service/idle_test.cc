// idle_test.cc - when an engine that finds nothing to do stops polling.
#include "unet/service/idle.h"

#include <catch2/catch.hpp>

namespace unet::service {
namespace {

TEST_CASE("a yield that came back soon does not keep the engine from polling") {
  Yielder yielder;
  yielder.yielded(kSecond, kSecond + 2 * kMicrosecond);
  CHECK_FALSE(yielder.hogged(kSecond + 2 * kMicrosecond));
  yielder.yielded(kSecond + kMillisecond, kSecond + kMillisecond + Yielder::kHogged);
  CHECK_FALSE(yielder.hogged(kSecond + kMillisecond + Yielder::kHogged));
}

TEST_CASE("a core that was taken once is tried again after a millisecond, one that is always taken ever more seldom") {
  Yielder yielder;
  Nanoseconds now = kSecond, avoided = 0;
  const auto lose_slice = [&] {
    yielder.yielded(now, now + 3 * kMillisecond);
    now += 3 * kMillisecond;
    const Nanoseconds from = now;
    while (yielder.hogged(now)) now += 10 * kMicrosecond;
    return now - from;
  };
  avoided = lose_slice();
  CHECK(avoided == Yielder::kAvoidFirst);
  for (int i = 0; i < 10; ++i) {
    const Nanoseconds next = lose_slice();
    CHECK(next == std::min(2 * avoided, Yielder::kAvoidLast));
    avoided = next;
  }
  CHECK(avoided == Yielder::kAvoidLast);
  // The core was ours for longer than that: it begins anew.
  now += Yielder::kAvoidLast + kMillisecond;
  CHECK(lose_slice() == Yielder::kAvoidFirst);
}

}  // namespace
}  // namespace unet::service
