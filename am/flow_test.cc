// flow_test.cc - one flow step by step: numbers, acknowledgements, credits, time-outs, invalid packets, and sessions of either side.
#include "am/flow.h"

#include <catch2/catch.hpp>

#include <random>

#include "am/flow_pair.h"

namespace unet::am::flow_test {

using namespace unet::am::test;

TEST_CASE("a reply carries the acknowledgement and the credit of its request") {
  Pair pair;
  pair.request(pair.a);
  CHECK(pair.pass(pair.a, pair.b) == 1);
  REQUIRE(pair.b.poll_delivery() == Sequence{0});
  pair.reply(pair.b);
  const auto sent = pair.out(pair.b);
  REQUIRE(sent.size() == 1);
  CHECK(sent[0].numbered);
  pair.now += kDelay;
  CHECK(pair.in(pair.a, sent[0]) == Flow::Arrival::fresh);
  CHECK(pair.a.unacknowledged() == 0);
  CHECK(pair.a.poll_delivery() == Sequence{0});
  CHECK(pair.b.unacknowledged() == 1);  // until an ack or the next request acknowledges it
  CHECK(pair.out(pair.a).empty());
  pair.now += FlowOptions{}.ack_delay;
  const auto ack = pair.out(pair.a);
  REQUIRE(ack.size() == 1);
  CHECK(ack[0].fields.kind == Kind::ack);
  CHECK(pair.in(pair.b, ack[0]) == Flow::Arrival::control);
  CHECK(pair.b.unacknowledged() == 0);
  CHECK((pair.a.idle() && pair.b.idle()));
  CHECK(pair.a.congestion().smooth_delay() == Approx(kDelay).margin(64));
}

TEST_CASE("what has arrived and was handled is told at once, if that is asked for") {
  Pair pair;
  pair.request(pair.a);
  pair.pass(pair.a, pair.b);
  REQUIRE(pair.b.poll_delivery());
  pair.b.handled();
  CHECK(pair.out(pair.b).empty());  // waits for a packet that carries the acknowledgement
  pair.b.tell_now();
  CHECK(pair.pass(pair.b, pair.a) == 0);
  CHECK(pair.a.unhandled() == 0);
  CHECK(pair.a.unacknowledged() == 0);
  pair.b.tell_now();
  CHECK(pair.out(pair.b).empty());  // only one ack
}

TEST_CASE("requests stop at the window, and go on with credits") {
  Pair pair({.window = 4});
  for (int i = 0; i < 4; ++i) pair.request(pair.a);
  CHECK_FALSE(pair.a.has_credit());
  CHECK(pair.pass(pair.a, pair.b) == 4);
  CHECK(pair.deliver(pair.b) == 4);
  // The packet has arrived, but is not handled yet.
  pair.pass(pair.b, pair.a);
  CHECK(pair.a.unacknowledged() == 0);
  CHECK_FALSE(pair.a.has_credit());
  pair.b.handled();
  pair.pass(pair.b, pair.a);
  CHECK(pair.a.has_credit());
}

TEST_CASE("a credit does not come back before what was sent ahead of it") {
  Pair pair({.window = 1});
  pair.request(pair.a);
  pair.pass(pair.a, pair.b);
  REQUIRE(pair.deliver(pair.b) == 1);
  pair.reply(pair.b);
  const auto lost = pair.out(pair.b);
  REQUIRE(lost.size() == 1);
  // The packet behind the lost reply says that the request was handled. The credit must wait for the reply.
  pair.request(pair.b);
  auto later = pair.out(pair.b);
  REQUIRE(later.size() == 1);
  CHECK(pair.in(pair.a, later[0]) == Flow::Arrival::fresh);
  CHECK(pair.a.unacknowledged() == 0);
  CHECK_FALSE(pair.a.has_credit());
  CHECK(pair.in(pair.a, lost[0]) == Flow::Arrival::fresh);
  CHECK(pair.a.has_credit());
  CHECK(pair.deliver(pair.a) == 2);
}

TEST_CASE("what is missing is sent again, and nothing else") {
  Pair pair;
  // Makes a first round trip, so that its time is known.
  pair.request(pair.a);
  auto first = pair.out(pair.a);
  pair.now += kDelay;
  pair.in(pair.b, first.at(0));
  pair.deliver(pair.b);
  pair.reply(pair.b);
  pair.pass(pair.b, pair.a);
  pair.deliver(pair.a);

  for (int i = 0; i < 5; ++i) pair.request(pair.a);
  auto sent = pair.out(pair.a);
  REQUIRE(sent.size() == 5);
  pair.now += kDelay;
  for (const size_t i : {0u, 2u, 4u}) pair.in(pair.b, sent[i]);
  CHECK(pair.deliver(pair.b) == 1);
  const auto ack = pair.out(pair.b);
  REQUIRE(ack.size() == 1);
  pair.in(pair.a, ack[0]);
  pair.now += 2 * kDelay;
  pair.a.handle_timeout(pair.now);
  const auto again = pair.out(pair.a);
  REQUIRE(again.size() == 2);
  CHECK(again[0].fields.sequence == sent[1].fields.sequence);
  CHECK(again[1].fields.sequence == sent[3].fields.sequence);
  CHECK(pair.a.counters().timeouts == 0);
  for (const auto& each : again) pair.in(pair.b, each);
  CHECK(pair.deliver(pair.b) == 4);
  CHECK(pair.in(pair.b, again[0]) == Flow::Arrival::dropped);
  CHECK(pair.b.counters().duplicates == 1);
}

TEST_CASE("what comes behind a gap is acknowledged when the gap opens, and when it is filled") {
  KnownPair pair;
  const auto sent = pair.send(10);
  REQUIRE(sent.size() == 10);
  const uint64_t before = pair.b.counters().acks_sent;
  pair.in(pair.b, sent[0]);
  for (int i = 2; i < 10; ++i) {
    Flow::Transmit each = sent[static_cast<size_t>(i)];
    each.fields.flags = 0;
    pair.in(pair.b, each);
    pair.handle_all();
    pair.out(pair.b);
  }
  CHECK(pair.b.counters().acks_sent == before + 1);
  pair.in(pair.b, sent[1]);
  CHECK(pair.out(pair.b).size() == 1);
}

TEST_CASE("go-back-N sends everything again after a time-out") {
  Pair pair({.recovery = Recovery::go_back_n});
  for (int i = 0; i < 5; ++i) pair.request(pair.a);
  auto sent = pair.out(pair.a);
  for (const size_t i : {0u, 2u, 3u, 4u}) pair.in(pair.b, sent[i]);
  CHECK(pair.deliver(pair.b) == 1);
  pair.pass(pair.b, pair.a);
  CHECK(pair.a.unacknowledged() == 4);
  pair.now = pair.a.next_timeout();
  pair.a.handle_timeout(pair.now);
  CHECK(pair.pass(pair.a, pair.b) == 4);
  CHECK(pair.deliver(pair.b) == 4);
}

TEST_CASE("with go-back-N, too, a window shrinks where most packets are lost") {
  Pair pair({.recovery = Recovery::go_back_n});
  const auto round_trip = [&] {
    pair.now += kDelay / 2;
    pair.deliver(pair.b);
    pair.now += kDelay / 2;
    pair.pass(pair.b, pair.a);
  };
  const auto offer = [&] {
    while (pair.a.has_credit()) pair.request(pair.a);
    return pair.out(pair.a);
  };
  for (int i = 0; i < 20; ++i) {
    for (const auto& each : offer()) pair.in(pair.b, each);
    while (pair.b.poll_delivery()) pair.b.handled();
    round_trip();
  }
  const double before = pair.a.congestion().window();
  // Only the first packet of each group arrives, so there is never more than one time-out in a row.
  for (int i = 0; i < 40; ++i) {
    const auto sent = offer();
    if (!sent.empty()) {
      pair.in(pair.b, sent.front());
      while (pair.b.poll_delivery()) pair.b.handled();
      round_trip();
    }
    pair.now = std::max(pair.now, pair.a.next_timeout());
    pair.a.handle_timeout(pair.now);
  }
  CAPTURE(before);
  CHECK(pair.a.congestion().window() < before / 2);
}

TEST_CASE("the last packet of all is sent again after a time-out, later each time") {
  Pair pair;
  pair.request(pair.a);
  CHECK(pair.out(pair.a).size() == 1);
  Nanoseconds before = 0;
  for (int i = 0; i < 4; ++i) {
    const Nanoseconds wait = pair.a.next_timeout() - pair.now;
    CHECK(wait > before);
    before = wait;
    pair.now += wait;
    pair.a.handle_timeout(pair.now);
    CHECK(pair.out(pair.a).size() == 1);
  }
  CHECK(pair.a.counters().resent == 4);
}

TEST_CASE("no echo makes a flow wait for longer than the longest time-out") {
  Pair pair;
  pair.request(pair.a);
  REQUIRE(pair.pass(pair.a, pair.b) == 1);
  pair.deliver(pair.b);
  pair.b.handled();
  pair.now += kMillisecond;
  auto acks = pair.out(pair.b);
  REQUIRE(acks.size() == 1);
  acks[0].fields.echo -= 1u << 30;  // 69 s ago
  pair.in(pair.a, acks[0]);
  REQUIRE(pair.a.congestion().smooth_delay() > 60 * kSecond);
  pair.request(pair.a);
  pair.out(pair.a);
  CHECK(pair.a.next_timeout() <= pair.now + FlowOptions{}.timeout_max);
}

TEST_CASE("who waits for a credit that was lost asks for it") {
  Pair pair({.window = 1});
  pair.request(pair.a);
  pair.pass(pair.a, pair.b);
  pair.deliver(pair.b);
  pair.now += FlowOptions{}.ack_delay;
  pair.pass(pair.b, pair.a);
  CHECK(pair.a.unacknowledged() == 0);
  pair.b.handled();
  CHECK(pair.out(pair.b).size() == 1);  // lost
  CHECK_FALSE(pair.a.has_credit());
  pair.now = pair.a.next_timeout();
  pair.a.handle_timeout(pair.now);
  const auto probe = pair.out(pair.a);
  REQUIRE(probe.size() == 1);
  CHECK(probe[0].fields.kind == Kind::probe);
  pair.in(pair.b, probe[0]);
  pair.pass(pair.b, pair.a);
  CHECK(pair.a.has_credit());
  CHECK(pair.a.counters().probes == 1);
}

TEST_CASE("a peer that stays silent is dead after the time that was given") {
  Pair pair({.dead_after = kSecond});
  pair.request(pair.a);
  const Nanoseconds start = pair.now;
  while (pair.a.state() == Flow::State::open && pair.now < start + 10 * kSecond) {
    pair.out(pair.a);
    pair.now = std::max(pair.now + 1, pair.a.next_timeout());
    pair.a.handle_timeout(pair.now);
  }
  CHECK(pair.a.state() == Flow::State::dead);
  CHECK(pair.now - start >= kSecond);
  CHECK(pair.now - start <= 2 * kSecond);
  CHECK(pair.out(pair.a).empty());
}

TEST_CASE("who was not polled for long has not given up: it asks first") {
  Pair pair;
  pair.request(pair.a);
  pair.out(pair.a);
  pair.now += 40 * kSecond;
  pair.a.handle_timeout(pair.now);
  REQUIRE(pair.a.state() == Flow::State::open);
  CHECK(pair.pass(pair.a, pair.b) == 1);
  pair.b.poll_delivery();
  pair.reply(pair.b);
  CHECK(pair.pass(pair.b, pair.a) == 1);
  CHECK(pair.a.state() == Flow::State::open);
}

TEST_CASE("round trips are right after a pause in which the clock of sent_at goes half round") {
  // The other side's clock is off by 20 millionths.
  Pair pair;
  const auto round_trip = [&] {
    const Nanoseconds here = pair.now, ahead = here / 50'000;
    pair.request(pair.a);
    auto out = pair.out(pair.a);
    REQUIRE(!out.empty());
    pair.now = here + kDelay / 2 + ahead;
    for (const auto& each : out) pair.in(pair.b, each);
    while (pair.b.poll_delivery()) pair.reply(pair.b);
    auto back = pair.out(pair.b);
    pair.now = here + kDelay;
    for (const auto& each : back) pair.in(pair.a, each);
    pair.deliver(pair.a);
  };
  for (int i = 0; i < 20; ++i) {
    round_trip();
    pair.now += kMillisecond;
  }
  pair.now += 200 * kSecond;
  for (int i = 0; i < 20; ++i) round_trip();
  CHECK(pair.a.congestion().smooth_delay() < 2 * kDelay);
}

TEST_CASE("time for which nobody looked makes no window smaller, on either side") {
  // A wire of 2 us between sides of which one or both poll only every 8 ms.
  const auto absence_of_a = GENERATE(Nanoseconds{0}, 8 * kMillisecond);
  const auto absence_of_b = GENERATE(Nanoseconds{0}, 8 * kMillisecond);
  const bool told = GENERATE(true, false);
  Pair pair;
  const auto round_trip = [&](Nanoseconds slept_a, Nanoseconds slept_b) {
    pair.request(pair.a);
    pair.a.handle_timeout(pair.now);
    const auto request = pair.out(pair.a);
    REQUIRE(request.size() == 1);
    pair.now += kMicrosecond + slept_b;
    CHECK(pair.b.handle_packet(request[0].fields, {}, true, pair.now, told ? slept_b : 0) == Flow::Arrival::fresh);
    CHECK(pair.deliver(pair.b) == 1);
    pair.reply(pair.b);
    const auto answer = pair.out(pair.b);
    REQUIRE(answer.size() == 1);
    pair.now += kMicrosecond + slept_a;
    CHECK(pair.a.handle_packet(answer[0].fields, {}, true, pair.now, told ? slept_a : 0) == Flow::Arrival::fresh);
    CHECK(pair.deliver(pair.a) == 1);
  };
  for (int i = 0; i < 10; ++i) round_trip(0, 0);
  const double window = pair.a.congestion().window();
  for (int i = 0; i < 50; ++i) round_trip(absence_of_a, absence_of_b);
  CAPTURE(absence_of_a, absence_of_b, told, window, pair.a.congestion().window());
  if (told || (absence_of_a == 0 && absence_of_b == 0)) {
    CHECK(pair.a.congestion().window() >= window);
  } else {
    CHECK(pair.a.congestion().window() < window / 4);
  }
}

TEST_CASE("a window below one packet grows again, however small the packets are") {
  Congestion congestion;
  Nanoseconds now = kSecond;
  const auto packets = [&](int count, Nanoseconds delay) {
    for (int i = 0; i < count; ++i) congestion.handle_ack(60, 60, delay, 0, now += kMillisecond);
  };
  packets(1, kDelay);
  packets(100, kMillisecond);
  REQUIRE(congestion.window() < 120);
  packets(10, kDelay);
  CHECK(congestion.window() >= 1500);
  CHECK(congestion.may_send(60, now));
}

TEST_CASE("a peer that lives anew is noticed, whoever speaks first") {
  const bool we_speak = GENERATE(false, true);
  Pair pair;
  pair.request(pair.a);
  pair.pass(pair.a, pair.b);
  pair.deliver(pair.b);
  pair.reply(pair.b);
  pair.pass(pair.b, pair.a);
  REQUIRE(pair.a.state() == Flow::State::open);
  FlowOptions later;
  later.session = 2;
  Flow anew(later);
  if (we_speak) {
    pair.request(pair.a);
    for (const auto& each : pair.out(pair.a)) CHECK(pair.in(anew, each) == Flow::Arrival::dropped);
    CHECK(anew.counters().stale == 1);
  } else {
    anew.begin(true, 64);
  }
  auto sent = pair.out(anew);
  REQUIRE(sent.size() == 1);
  if (!we_speak) sent[0].fields.kind = Kind::short_request;
  CHECK((sent[0].fields.kind == Kind::reset) == we_speak);
  pair.in(pair.a, sent[0]);
  CHECK(pair.a.state() == Flow::State::restarted);
}

TEST_CASE("what is left of an earlier life is dropped") {
  Pair pair;
  pair.request(pair.a);
  const auto old = pair.out(pair.a);
  FlowOptions later;
  later.session = 2;
  Flow anew(later);
  anew.begin(true, 64);
  auto sent = pair.out(anew);
  sent.at(0).fields.kind = Kind::short_request;
  CHECK(pair.in(pair.b, sent[0]) == Flow::Arrival::fresh);
  CHECK(pair.in(pair.b, old.at(0)) == Flow::Arrival::dropped);
  CHECK(pair.b.counters().stale == 1);
  CHECK(pair.b.state() == Flow::State::open);
}

TEST_CASE("a peer that lies about numbers gains nothing") {
  Pair pair({.window = 8});
  for (int i = 0; i < 4; ++i) pair.request(pair.a);
  const auto sent = pair.out(pair.a);
  Flow::Transmit lie{.fields = {.kind = Kind::ack, .session = 1, .addressee = 1}};

  SECTION("acknowledging what was not sent") {
    lie.fields.acked = {5};
    pair.in(pair.a, lie);
    CHECK(pair.a.counters().bad_ack == 1);
    CHECK(pair.a.unacknowledged() == 4);
  }
  SECTION("acknowledging it behind a gap") {
    lie.arrived.arrived[0] = ~uint64_t{0};
    lie.arrived.arrived[1] = ~uint64_t{0};
    pair.in(pair.a, lie);
    CHECK(pair.a.counters().bad_ack == 125);
    CHECK(pair.a.unacknowledged() == 4);
  }
  SECTION("giving back credits for what was not asked") {
    lie.fields.handled = 5;
    pair.in(pair.a, lie);
    CHECK(pair.a.counters().bad_ack == 1);
  }
  SECTION("numbers beyond the window") {
    Flow::Transmit far = sent[0];
    far.fields.sequence = {kSequenceWindow};
    CHECK(pair.in(pair.b, far) == Flow::Arrival::dropped);
    far.fields.sequence = {0x8000'0001u};
    CHECK(pair.in(pair.b, far) == Flow::Arrival::dropped);
    CHECK(pair.b.counters().beyond_window + pair.b.counters().duplicates == 2);
  }
  SECTION("more requests than it has credits, never acknowledging a reply") {
    int handled = 0;
    for (uint32_t i = 0; i < 4 * kSequenceWindow; ++i) {
      Flow::Transmit more = sent[0];
      more.fields.sequence = {i};
      pair.in(pair.b, more);
      while (pair.b.poll_delivery()) {
        pair.reply(pair.b);
        ++handled;
      }
      pair.out(pair.b);
    }
    CHECK(handled == static_cast<int>(kSequenceWindow));
    CHECK(pair.b.counters().beyond_window > 0);
  }
}

TEST_CASE("numbers wrap") {
  // Sending 2^32 packets would take too long. A window from every number near the wrap covers all cases.
  for (uint32_t start : {0xFFFFFF00u, 0xFFFFFFFFu, 0x7FFFFFFFu, 0x80000000u}) {
    const Sequence at{start};
    for (uint32_t ahead = 1; ahead < kSequenceWindow; ++ahead) {
      CHECK(before(at, at + ahead));
      CHECK_FALSE(before(at + ahead, at));
      CHECK(distance(at, at + ahead) == ahead);
    }
  }
}

TEST_CASE("random packets never break a flow, nor what it says of itself") {
  std::mt19937 random(3);
  const auto any = [&](uint32_t mostly_below) { return static_cast<uint32_t>(random() % 8 == 0 ? random() : random() % mostly_below); };
  Pair pair;
  for (int i = 0; i < 200'000; ++i) {
    pair.now += random() % (50 * kMicrosecond);
    Flow::Transmit lie{.fields = {.kind = static_cast<Kind>(1 + random() % kKindMax),
                                  .session = random() % 64 == 0 ? 2u : 1u,
                                  .addressee = static_cast<uint32_t>(random() % 3),
                                  .sequence = {any(256)},
                                  .acked = {any(256)},
                                  .handled = any(64),
                                  .sent_at = static_cast<uint32_t>(random()),
                                  .echo = static_cast<uint32_t>(random())}};
    for (auto& each : lie.arrived.arrived) each = uint64_t{random()} << 32 | random();
    pair.in(pair.a, lie, random() % 2 == 0);
    if (pair.a.has_credit()) pair.request(pair.a);
    while (pair.a.poll_delivery()) pair.a.handled();
    pair.a.handle_timeout(pair.now);
    pair.out(pair.a);
    REQUIRE(pair.a.unacknowledged() <= kSequenceWindow);
    REQUIRE(pair.a.in_flight() <= 64 * kSequenceWindow);
    if (pair.a.state() != Flow::State::open) pair.a = Flow(FlowOptions{});
  }
}

}  // namespace unet::am::flow_test
