// capture_memory_test.cc - records of all sizes through a small ring: every byte, in order, also between two threads.
#include "unet/capture_memory.h"

#include <catch2/catch.hpp>

#include <thread>

namespace unet::capture_memory_test {
namespace {

std::byte body(uint64_t number, size_t position) { return static_cast<std::byte>(number * 31 + position * 7); }
uint32_t size_of(uint64_t number) { return static_cast<uint32_t>(number * 37 % 500); }

struct Capture {
  explicit Capture(uint64_t size) : bytes(size), memory(size), ring(header, memory.data(), size) {}
  // Puts record `number`, its frame in two pieces. False: there was no room.
  bool put(uint64_t number) {
    std::vector<std::byte> frame(size_of(number));
    for (size_t i = 0; i < frame.size(); ++i) frame[i] = body(number, i);
    const Bytes all(frame), first = all.first(frame.size() / 3), second = all.subspan(first.size());
    const uint64_t dropped = at.dropped;
    ring.put(at, {.time = number, .length = size_of(number) + 1, .captured = size_of(number), .port = 0, .outbound = 0, .unused = {}},
             {{first, second}});
    return at.dropped == dropped;
  }
  // Returns 0 if the ring is empty, 1 for record `number`, -1 for anything else.
  int take(uint64_t number) {
    if (!reader.next()) return reader.broken() ? -1 : 0;
    bool good = reader.record().time == number && reader.record().length == size_of(number) + 1 && reader.frame().size() == size_of(number);
    for (size_t i = 0; good && i < reader.frame().size(); ++i) good = reader.frame()[i] == body(number, i);
    return good ? 1 : -1;
  }

  const uint64_t bytes;
  std::vector<std::byte> memory;
  CaptureHeader header{};
  CaptureRing ring;
  CapturePositions at;
  CaptureReader reader{ring};
};

}  // namespace

TEST_CASE("what is put is seen when it is published, and not when it was taken back") {
  Capture capture(4096);
  uint64_t in = 0, out = 0;
  for (int round = 0; round < 5000; ++round) {
    REQUIRE(capture.put(in));
    REQUIRE(capture.take(out) == 0);
    const CapturePositions mark = capture.at;
    REQUIRE(capture.put(999));
    REQUIRE(capture.put(998));
    capture.at = mark;
    REQUIRE(capture.put(in + 1));
    capture.ring.publish(capture.at);
    in += 2;
    REQUIRE(capture.take(out++) == 1);
    REQUIRE(capture.take(out++) == 1);
    REQUIRE(capture.take(out) == 0);
  }
}

TEST_CASE("a full ring has no room until something was read") {
  Capture capture(4096);
  uint64_t in = 0, out = 0;
  for (int round = 0; round < 200; ++round) {
    while (capture.put(in)) ++in;
    capture.ring.publish(capture.at);
    CHECK_FALSE(capture.ring.has_room(capture.at, capture.bytes / 2));
    while (out < in) REQUIRE(capture.take(out++) == 1);
    CHECK(capture.ring.has_room(capture.at, capture.bytes / 2));
  }
  CHECK(in > 2000);
  CHECK(capture.header.dropped == 200);
}

TEST_CASE("one thread writes a capture and another reads it") {
  Capture capture(8192);
  constexpr uint64_t kCount = 100'000;
  std::thread writer([&] {
    for (uint64_t n = 0; n < kCount;) {
      if (capture.put(n)) ++n;
      else std::this_thread::yield();
      capture.ring.publish(capture.at);
    }
  });
  int worst = 1;
  for (uint64_t n = 0; n < kCount;) {
    const int result = capture.take(n);
    if (result < 0) worst = result;
    if (result != 0) ++n;
    else std::this_thread::yield();
  }
  writer.join();
  CHECK(worst == 1);
}

}  // namespace unet::capture_memory_test
