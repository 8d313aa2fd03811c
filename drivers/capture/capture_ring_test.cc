// capture_ring_test.cc - records of all sizes through a small ring: every byte, in order, also between two threads.
#include "drivers/capture/capture_ring.h"

#include <catch2/catch.hpp>

#include <thread>

using namespace unet;
using namespace unet::drivers;

namespace {

std::byte body(uint64_t number, size_t position) { return static_cast<std::byte>(number * 31 + position * 7); }
uint32_t size_of(uint64_t number) { return static_cast<uint32_t>(number * 37 % 500); }

bool put(CaptureRing& ring, uint64_t number) {
  const uint32_t size = size_of(number);
  std::byte* const room = ring.room(size);
  if (room == nullptr) return false;
  for (uint32_t i = 0; i < size; ++i) room[i] = body(number, i);
  ring.stage({.time = number, .length = size + 1, .captured = size, .direction = pcapng::Direction::inbound, .size = 0});
  return true;
}

// Returns 0 if the ring is empty, 1 for record `number`, -1 for anything else.
int take(CaptureRing& ring, uint64_t number) {
  CaptureRing::Record record;
  std::span<const std::byte> bytes;
  if (!ring.next(record, bytes)) return 0;
  bool good = record.time == number && record.length == size_of(number) + 1 && bytes.size() == size_of(number);
  for (size_t i = 0; good && i < bytes.size(); ++i) good = bytes[i] == body(number, i);
  ring.consumed(record);
  return good ? 1 : -1;
}

}  // namespace

TEST_CASE("what is staged is seen when it is published, and not when it was taken back") {
  CaptureRing ring(4096);
  uint64_t in = 0, out = 0;
  for (int round = 0; round < 5000; ++round) {
    REQUIRE(put(ring, in));
    REQUIRE(take(ring, out) == 0);
    const uint64_t mark = ring.staged();
    REQUIRE(put(ring, 999));
    REQUIRE(put(ring, 998));
    ring.take_back(mark);
    REQUIRE(put(ring, in + 1));
    ring.publish();
    in += 2;
    REQUIRE(take(ring, out++) == 1);
    REQUIRE(take(ring, out++) == 1);
    REQUIRE(take(ring, out) == 0);
  }
}

TEST_CASE("a full ring has no room until something was read") {
  CaptureRing ring(4096);
  uint64_t in = 0, out = 0;
  for (int round = 0; round < 200; ++round) {
    while (put(ring, in)) ++in;
    ring.publish();
    CHECK(ring.filling());
    while (out < in) REQUIRE(take(ring, out++) == 1);
    CHECK_FALSE(ring.filling());
  }
  CHECK(in > 2000);
}

TEST_CASE("two threads") {
  CaptureRing ring(8192);
  constexpr uint64_t kCount = 100'000;
  std::thread writer([&] {
    for (uint64_t n = 0; n < kCount;) {
      if (put(ring, n)) ++n;
      else std::this_thread::yield();
      ring.publish();
    }
  });
  int worst = 1;
  for (uint64_t n = 0; n < kCount;) {
    const int result = take(ring, n);
    if (result < 0) worst = result;
    if (result != 0) ++n;
    else std::this_thread::yield();
  }
  writer.join();
  CHECK(worst == 1);
}
