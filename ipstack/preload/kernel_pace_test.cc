// kernel_pace_test.cc - when a wait asks for the kernel's part.
#include "ipstack/preload/kernel_pace.h"

#include <catch2/catch.hpp>

using namespace unet;
using unet::preload::KernelPace;

TEST_CASE("the kernel's part is asked for at once, then seldom while there is nothing") {
  KernelPace pace;
  const Nanoseconds begin = kSecond;
  REQUIRE(pace.is_due(begin));
  pace.note(begin, false);
  CHECK(!pace.is_due(begin + kMicrosecond));
  CHECK(!pace.is_due(begin + 9 * kMicrosecond));
  CHECK(pace.is_due(begin + 10 * kMicrosecond));
}

TEST_CASE("what the kernel had is asked for again each time, until it has no more") {
  KernelPace pace;
  pace.note(kSecond, true);
  CHECK(pace.is_due(kSecond));
  pace.note(kSecond + 1, false);
  CHECK(!pace.is_due(kSecond + 2));
}

TEST_CASE("what the program has done itself is seen at once") {
  KernelPace pace;
  pace.note(kSecond, false);
  KernelPace::note_call();
  CHECK(pace.is_due(kSecond + 1));
  pace.note(kSecond + 1, false);
  CHECK(!pace.is_due(kSecond + 2));
}

TEST_CASE("other descriptors are asked for at once") {
  KernelPace pace;
  pace.note(kSecond, false, 7);
  CHECK(!pace.is_due(kSecond + 1, 7));
  CHECK(pace.is_due(kSecond + 1, 8));
}
