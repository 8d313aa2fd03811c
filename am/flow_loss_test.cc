// flow_loss_test.cc - one flow step by step: packets that are lost, packets that are only late, and needless retransmissions.
#include <catch2/catch.hpp>

#include "am/flow_pair.h"

namespace unet::am::flow_loss_test {

using namespace unet::am::test;

TEST_CASE("the last of several, if it is lost, is sent again after two round trips") {
  KnownPair pair;
  const auto sent = pair.send(4);
  REQUIRE(sent.size() == 4);
  pair.now += kDelay / 2;
  for (int i = 0; i < 3; ++i) pair.in(pair.b, sent[i]);
  pair.handle_all();
  pair.answer();
  REQUIRE(pair.a.unacknowledged() == 1);
  CHECK(pair.a.next_timeout() - pair.now < 3 * kDelay + FlowOptions{}.ack_delay);
  pair.now = pair.a.next_timeout();
  pair.a.handle_timeout(pair.now);
  const auto again = pair.out(pair.a);
  REQUIRE(again.size() == 1);
  CHECK(again[0].fields.sequence == sent[3].fields.sequence);
}

TEST_CASE("what was sent again in vain does not make those behind it look lost") {
  FlowOptions options;
  options.congestion.first_window = 1 << 20;
  KnownPair pair(options);
  const auto sent = pair.send(10);
  REQUIRE(sent.size() == 10);
  // The peer does not poll for a long time.
  for (int i = 0; i < 3; ++i) {
    pair.now = pair.a.next_timeout();
    pair.a.handle_timeout(pair.now);
    REQUIRE(pair.out(pair.a).size() == 1);
  }
  pair.now += 20 * kDelay;
  // Then it finds some of the packets.
  for (int i = 0; i < 5; ++i) pair.in(pair.b, sent[i]);
  pair.handle_all();
  pair.answer();
  CHECK(pair.a.unacknowledged() == 5);
  pair.now += kDelay;
  if (pair.now >= pair.a.next_timeout()) pair.a.handle_timeout(pair.now);
  CHECK(pair.out(pair.a).size() <= 1);
  CHECK(pair.a.counters().resent <= 4);
}

TEST_CASE("packets that were overtaken are waited for, once it is known that they come late") {
  KnownPair pair;
  constexpr Nanoseconds kLate = 6 * kDelay;
  // The second packet of each ten comes late. Its retransmission arrives, too.
  const auto ten_of_them = [&] {
    const uint64_t before = pair.a.counters().resent;
    const auto sent = pair.send(10);
    REQUIRE(sent.size() == 10);
    const Nanoseconds start = pair.now;
    pair.now += kDelay / 2;
    for (size_t i = 0; i < sent.size(); ++i) {
      if (i != 1) pair.in(pair.b, sent[i]);
    }
    pair.handle_all();
    pair.answer();
    Pair::Transmits again;
    while (pair.a.next_timeout() < start + kLate) {
      pair.now = pair.a.next_timeout();
      pair.a.handle_timeout(pair.now);
      for (const auto& each : pair.out(pair.a)) again.push_back(each);
    }
    pair.now = start + kLate;
    pair.in(pair.b, sent[1]);
    for (const auto& each : again) pair.in(pair.b, each);
    pair.handle_all();
    pair.answer();
    REQUIRE(pair.a.unacknowledged() == 0);
    pair.now += kMillisecond;
    return pair.a.counters().resent - before;
  };
  CHECK(ten_of_them() == 1);
  for (int i = 0; i < 6; ++i) ten_of_them();
  for (int i = 0; i < 5; ++i) CHECK(ten_of_them() == 0);
}

namespace {

// The second of three packets is missing, and is acknowledged after it was sent again. The peer reports `repeats` packets that came twice.
// Returns the time until the retransmission.
Nanoseconds lose_one(KnownPair& pair, uint8_t repeats) {
  const auto sent = pair.send(3);
  REQUIRE(sent.size() == 3);
  pair.now += kDelay;
  Flow::Transmit ack{.fields = {.kind = Kind::ack, .session = 1, .addressee = 1}};
  ack.fields.handler = repeats;
  ack.fields.acked = sent[0].fields.sequence;
  ack.arrived.arrived[0] = 3;
  pair.in(pair.a, ack);
  const Nanoseconds start = pair.now;
  while (true) {
    pair.now = pair.a.next_timeout();
    pair.a.handle_timeout(pair.now);
    if (!pair.out(pair.a).empty()) break;
  }
  const Nanoseconds took = pair.now - start;
  pair.now += kDelay;
  ack.fields.acked = sent[2].fields.sequence + 1;
  ack.fields.handled = ack.fields.acked.value;
  pair.in(pair.a, ack);
  return took;
}

}  // namespace

TEST_CASE("last packets that were lost do not hide packets that come late") {
  KnownPair pair;
  for (int i = 0; i < 10; ++i) {
    REQUIRE(pair.send(1).size() == 1);  // lost
    pair.now = pair.a.next_timeout();
    pair.a.handle_timeout(pair.now);
    const auto again = pair.out(pair.a);
    REQUIRE(again.size() == 1);
    pair.in(pair.b, again[0]);
    pair.handle_all();
    pair.answer();
    REQUIRE(pair.a.unacknowledged() == 0);
  }
  const Nanoseconds before = lose_one(pair, 0);
  for (uint8_t repeats = 1; repeats < 4; ++repeats) lose_one(pair, repeats);
  CHECK(lose_one(pair, 4) > before);
}

TEST_CASE("a peer that had packets twice is believed to have them late, however it lies") {
  KnownPair pair;
  const Nanoseconds before = lose_one(pair, 0);
  for (uint8_t repeats = 1; repeats < 100; ++repeats) lose_one(pair, repeats);
  const Nanoseconds after = lose_one(pair, 100);
  CHECK(after >= before);
  CHECK(after <= FlowOptions{}.timeout_min + 4 * kDelay);
}

}  // namespace unet::am::flow_loss_test
