// congestion_test.cc - pauses, and windows step by step: round trips with absence, losses on a wire that is not full, silence.
#include "am/congestion.h"

#include <catch2/catch.hpp>

#include "am/absence.h"

namespace unet::am::congestion_test {
namespace {

constexpr Nanoseconds kDelay = 20 * kMicrosecond;
constexpr uint32_t kPacket = 1500;

// A flow that has met a queue once, and always has packets to send.
struct Loaded {
  Loaded() {
    while (congestion.window() < 100 * kPacket) ack(kDelay);
    ack(2 * kDelay);
  }
  void ack(Nanoseconds delay, Nanoseconds absence = 0) {
    congestion.handle_ack(kPacket, static_cast<uint64_t>(congestion.window()), delay, absence, now += delay);
  }
  // Acknowledges a window's worth of packets.
  void round_trip(Nanoseconds delay, Nanoseconds absence = 0) {
    now += delay;
    for (double bytes = congestion.window(); bytes > 0; bytes -= kPacket) {
      congestion.handle_ack(kPacket, static_cast<uint64_t>(congestion.window()), delay, absence, now);
    }
  }
  // Simulates a long queue until the window is nearly 0.
  void shrink() {
    for (int i = 0; i < 20; ++i) {
      now += 10 * kMillisecond;
      ack(20 * kDelay);
    }
    REQUIRE(congestion.window() < 2 * kPacket);
  }

  Congestion congestion{CongestionOptions{.packet = kPacket}};
  Nanoseconds now = kSecond;
};

}  // namespace

TEST_CASE("what arrived during a pause may be found long after it") {
  constexpr Nanoseconds kPause = 8 * kMillisecond;
  Nanoseconds now = kSecond;
  Absence absence;
  absence.begin(now);
  const auto find = [&](int count, Nanoseconds after = kMicrosecond) {
    for (int i = 0; i < count; ++i) {
      absence.found(now += after);
      absence.polled(now += after, false);
    }
  };
  absence.polled(now += 100, true);
  find(1);
  CHECK(absence.time() == 0);
  find(1, kPause);  // the packet before was still being handled
  CHECK(absence.time() == kPause);
  find(50);
  CHECK(absence.time() == kPause);
  SECTION("the longest counts, as a receiver that is always slow would be away for ever") {
    find(50, kPause);
    CHECK(absence.time() == kPause);
  }
  SECTION("until nothing more is there") {
    absence.polled(now += kMicrosecond, true);
    find(1);
    CHECK(absence.time() == 0);
  }
  SECTION("and it may come just after that was seen") {
    absence.polled(now += kPause, true);
    find(1);
    CHECK(absence.time() == kPause);
  }
  SECTION("until what a receive queue holds was found") {
    find(200);
    CHECK(absence.time() == kPause);
    find(512);
    CHECK(absence.time() == 0);
  }
  SECTION("also where each packet takes long") {
    find(1024, 30 * kMicrosecond);
    CHECK(absence.time() == 30 * kMicrosecond);
  }
}

TEST_CASE("polls that find something else have looked, too") {
  Nanoseconds now = kSecond;
  Absence absence;
  absence.begin(now);
  for (int i = 0; i < 10; ++i) {
    for (int polls = 0; polls < 50; ++polls) absence.polled(now += kMicrosecond, false);
    absence.found(now += kMicrosecond);
    CHECK(absence.time() == 0);
  }
}

TEST_CASE("a sleep that a packet ended counts for no longer than one peer can have sent meanwhile") {
  constexpr Nanoseconds kSleep = 8 * kMillisecond;
  Nanoseconds now = kSecond;
  Absence absence;
  absence.begin(now);
  absence.polled(now += kMicrosecond, true);
  absence.sleeps();
  absence.found(now += kSleep);
  CHECK(absence.time() == kSleep);
  for (uint32_t i = 1; i < kFlowWindow; ++i) absence.found(now += kMicrosecond);
  CHECK(absence.time() == kSleep);
  absence.found(now += kMicrosecond);
  CHECK(absence.time() == 0);
}

TEST_CASE("a round trip in which nobody looked is no longer than expected") {
  Congestion congestion;
  Nanoseconds now = kSecond;
  const bool first = GENERATE(true, false);
  const auto acks = [&](int count, Nanoseconds delay, Nanoseconds absence) {
    for (int i = 0; i < count; ++i) congestion.handle_ack(kPacket, kPacket, delay, absence, now += delay);
  };
  if (!first) acks(20, kDelay, 0);
  acks(5, 100 * kMillisecond, 100 * kMillisecond);
  acks(1, kDelay, 0);
  CAPTURE(first, congestion.smooth_delay(), congestion.variation());
  CHECK(congestion.smooth_delay() < 2 * kDelay);
  CHECK(congestion.variation() <= kDelay);
}

TEST_CASE("losses make a window smaller where the wire is full, or most packets are lost") {
  Loaded flow;
  const double before = flow.congestion.window();
  const auto lose_of_1000 = [&](uint64_t losses) {
    static constexpr uint64_t kSent = 1000;
    for (uint64_t i = 0; i < kSent; ++i) {
      flow.now += kDelay;
      if (i % 10 < losses / 100) flow.congestion.handle_loss(i, flow.now);
    }
  };
  SECTION("a third of them, on a wire that is not full") {
    flow.ack(kDelay);
    lose_of_1000(300);
    CHECK(flow.congestion.window() >= before);
  }
  SECTION("most") {
    flow.ack(kDelay);
    lose_of_1000(700);
    CHECK(flow.congestion.window() < before / 4);
    CHECK(flow.congestion.window() >= kPacket);  // delays alone decide below one packet
  }
  SECTION("a few, while there is a long queue") {
    flow.now += kDelay * 10;
    flow.ack(kDelay * 10);
    const double then = flow.congestion.window();
    lose_of_1000(100);
    CHECK(flow.congestion.window() < then / 2);
  }
}

TEST_CASE("where there is no queue, a window grows ever faster") {
  Loaded flow;
  flow.shrink();
  int trips = 0;
  for (; flow.congestion.window() < 100 * kPacket; ++trips) flow.round_trip(kDelay);
  CHECK(trips < 50);
  SECTION("but by one packet, where there is one") {
    const double before = flow.congestion.window();
    const Nanoseconds queue = (flow.congestion.target() - kDelay) * 3 / 4;
    flow.round_trip(kDelay + queue);
    const double after_one = flow.congestion.window();
    flow.round_trip(kDelay + queue);
    CHECK(flow.congestion.window() - after_one <= 1.05 * kPacket);
    CHECK(after_one > before);
  }
}

TEST_CASE("of a silence in which nobody looked nothing remains") {
  Loaded flow;
  const double before = flow.congestion.window();
  for (uint32_t times = 1; times <= 6; ++times) flow.congestion.handle_silence(times, flow.now += kMillisecond);
  REQUIRE(flow.congestion.window() < before / 8);
  SECTION("because the peer did not") {
    flow.ack(8 * kMillisecond, 8 * kMillisecond);
    CHECK(flow.congestion.window() >= before);
  }
  SECTION("else it does, and the window comes back as it grows") {
    flow.ack(kDelay);
    CHECK(flow.congestion.window() < before / 4);
  }
}

TEST_CASE("a window does not grow ever faster only because nobody looked") {
  Loaded flow;
  flow.shrink();
  for (int trips = 0; trips < 50; ++trips) flow.round_trip(2 * kDelay, 2 * kDelay);
  CHECK(flow.congestion.window() < 55 * kPacket);
}

}  // namespace unet::am::congestion_test
