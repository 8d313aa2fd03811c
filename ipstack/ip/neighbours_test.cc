// neighbours_test.cc - the state machine of RFC 4861's appendix C, waiting packets, a full table, and timers.
#include "ipstack/ip/neighbours.h"

#include <catch2/catch.hpp>

#include <map>
#include <random>
#include <set>
#include <string>

namespace unet::ip::neighbours_test {
namespace {

using State = Neighbours::State;

const IpAddress kA = *parse_ip("10.0.1.9"), kB = *parse_ip("fd00:1::9");
constexpr MacAddress kMac{2, 0, 0, 0, 0, 9}, kOther{2, 0, 0, 0, 0, 10};

struct World {
  Neighbours cache;
  Nanoseconds now = kSecond;

  // The questions that are due.
  std::vector<Neighbours::Question> ask() {
    std::vector<Neighbours::Question> questions;
    for (Neighbours::Question each; cache.poll_question(now, each);) questions.push_back(each);
    return questions;
  }
  // Waits until there is a question, or nothing is due.
  std::vector<Neighbours::Question> next() {
    REQUIRE(cache.next_event() != ~Nanoseconds{0});
    std::vector<Neighbours::Question> questions;
    while (questions.empty() && cache.next_event() != ~Nanoseconds{0}) {
      now = std::max(now, cache.next_event());
      questions = ask();
    }
    return questions;
  }
  std::vector<Neighbours::Released> released() {
    std::vector<Neighbours::Released> all;
    for (Neighbours::Released each; cache.poll_released(each);) all.push_back(each);
    return all;
  }
  void become(const IpAddress& address, State state) {
    static_cast<void>(cache.resolve(address, now));
    if (state == State::incomplete) return;
    cache.handle_answer(address, kMac, state != State::stale, true, now);
    if (state == State::delay || state == State::probe) {
      now += 60 * kSecond;
      ask();
      REQUIRE(cache.state(address) == State::stale);
      REQUIRE(cache.resolve(address, now) == kMac);
    }
    if (state == State::probe) {
      now += 5 * kSecond;
      REQUIRE(ask().size() == 1);
    }
    REQUIRE(cache.state(address) == state);
  }
};

}  // namespace

TEST_CASE("neighbour cache: INCOMPLETE, REACHABLE, STALE, DELAY, PROBE, removed") {
  World world;
  for (const IpAddress& address : {kA, kB}) {
    CHECK_FALSE(world.cache.resolve(address, world.now));
    auto questions = world.ask();
    REQUIRE(questions.size() == 1);
    CHECK(questions[0].target == address);
    CHECK_FALSE(questions[0].station);  // multicast or broadcast
    CHECK(world.ask().empty());
    CHECK_FALSE(world.cache.resolve(address, world.now));  // resolution is in progress
    CHECK(world.ask().empty());
    world.cache.handle_answer(address, kMac, true, true, world.now);
    CHECK(world.cache.state(address) == State::reachable);
    CHECK(world.cache.resolve(address, world.now) == kMac);
    const Nanoseconds answered = world.now;
    CHECK(world.next().empty());
    CHECK(world.cache.state(address) == State::stale);
    CHECK(world.now - answered >= 15 * kSecond);
    CHECK(world.now - answered <= 45 * kSecond);
    CHECK(world.ask().empty());  // not in use
    CHECK(world.cache.resolve(address, world.now) == kMac);
    CHECK(world.cache.state(address) == State::delay);
    const Nanoseconds used = world.now;
    for (uint32_t i = 0; i < 3; ++i) {
      questions = world.next();
      REQUIRE(questions.size() == 1);
      CHECK(questions[0].station == kMac);
      CHECK(world.now == used + 5 * kSecond + i * kSecond);
      CHECK(world.cache.state(address) == State::probe);
      CHECK(world.cache.resolve(address, world.now) == kMac);
    }
    CHECK(world.next().empty());
    CHECK_FALSE(world.cache.state(address));
    CHECK(world.now == used + 8 * kSecond);
  }
  CHECK(world.cache.counters().failed == 2);
  CHECK(world.cache.counters().questions == 8);
  CHECK(world.cache.used() == 0);
}

TEST_CASE("neighbour cache: resolution fails after three solicitations, and waiting packets are returned") {
  World world;
  const Nanoseconds start = world.now;
  CHECK_FALSE(world.cache.resolve(kA, world.now));
  CHECK_FALSE(world.cache.wait(kA, 1));
  CHECK_FALSE(world.cache.wait(kA, 2));
  CHECK_FALSE(world.cache.wait(kA, 3));
  CHECK(world.cache.wait(kA, 4) == 1u);  // the oldest is dropped
  CHECK(world.cache.wait(kB, 5) == 5u);  // no resolution in progress
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(world.next().size() == 1);
    CHECK(world.now == start + i * kSecond);
    CHECK(world.released().empty());
  }
  CHECK(world.next().empty());
  CHECK(world.now == start + 3 * kSecond);
  const auto released = world.released();
  REQUIRE(released.size() == 3);
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(released[i].packet == i + 2);
    CHECK(released[i].failed);
    CHECK(released[i].address == kA);
  }
  CHECK(world.cache.counters().packets_dropped == 5);
  CHECK(world.cache.next_event() == ~Nanoseconds{0});
}

TEST_CASE("neighbour cache: waiting packets are released by any message that resolves the neighbour") {
  for (const int how : {0, 1, 2}) {
    World world;
    CHECK_FALSE(world.cache.resolve(kA, world.now));
    CHECK_FALSE(world.cache.wait(kA, 7));
    CHECK_FALSE(world.cache.wait(kA, 8));
    if (how == 0) world.cache.handle_answer(kA, kMac, true, true, world.now);
    if (how == 1) world.cache.handle_answer(kA, kMac, false, false, world.now);
    if (how == 2) world.cache.handle_question(kA, kMac, world.now);
    const auto released = world.released();
    REQUIRE(released.size() == 2);
    CHECK(released[0].packet == 7);
    CHECK(released[1].packet == 8);
    for (const auto& each : released) {
      CHECK_FALSE(each.failed);
      CHECK(each.station == kMac);
    }
    CHECK(world.cache.state(kA) == (how == 0 || how == 3 ? State::reachable : State::stale));
    CHECK(world.cache.resolve(kA, world.now) == kMac);
    CHECK(world.cache.wait(kA, 9) == 9u);  // already resolved
  }
}

TEST_CASE("every answer in every state, as appendix C of RFC 4861 has it") {
  struct Row {
    State before;
    bool other, none, solicited, override_entry;
    State after;
    bool other_after;
  };
  constexpr State I = State::incomplete, R = State::reachable, S = State::stale, D = State::delay, P = State::probe;
  const Row rows[] = {
      {I, false, true, true, true, I, false},   {I, false, false, true, false, R, false}, {I, false, false, false, false, S, false},
      {I, true, false, true, true, R, true},
      {R, false, false, true, false, R, false}, {R, false, false, false, true, R, false}, {R, true, false, true, false, S, false},
      {R, true, false, false, false, S, false}, {R, true, false, true, true, R, true},    {R, true, false, false, true, S, true},
      {R, false, true, true, false, R, false},
      {S, false, false, true, false, R, false}, {S, false, false, false, true, S, false}, {S, true, false, true, false, S, false},
      {S, true, false, true, true, R, true},    {S, true, false, false, true, S, true},
      {D, false, false, true, false, R, false}, {D, true, false, true, false, D, false},  {D, true, false, true, true, R, true},
      {D, true, false, false, true, S, true},   {D, false, false, false, false, D, false},
      {P, false, false, true, true, R, false},  {P, true, false, true, false, P, false},  {P, true, false, true, true, R, true},
      {P, true, false, false, true, S, true},   {P, false, true, true, false, R, false},
  };
  for (const Row& row : rows) {
    CAPTURE(&row - rows);
    World world;
    world.become(kB, row.before);
    const std::optional<MacAddress> station = row.none ? std::nullopt : std::optional(row.other ? kOther : kMac);
    world.cache.handle_answer(kB, station, row.solicited, row.override_entry, world.now);
    CHECK(world.cache.state(kB) == row.after);
    if (row.after != I) CHECK(world.cache.resolve(kB, world.now) == (row.other_after ? kOther : kMac));
  }
  World world;
  world.cache.handle_answer(kB, kMac, true, true, world.now);
  CHECK_FALSE(world.cache.state(kB));  // unsolicited
}

TEST_CASE("neighbour cache: solicitations of others, reachability confirmations, routers") {
  for (const State before : {State::reachable, State::stale, State::delay, State::probe}) {
    World world;
    world.become(kB, before);
    world.cache.handle_question(kB, kMac, world.now);
    CHECK(world.cache.state(kB) == before);
    world.cache.confirm(kB, world.now);
    CHECK(world.cache.state(kB) == State::reachable);
    CHECK(world.ask().empty());
  }
  for (const State before : {State::reachable, State::stale, State::delay, State::probe}) {
    World world;
    world.become(kB, before);
    world.cache.handle_question(kB, kOther, world.now);
    CHECK(world.cache.state(kB) == State::stale);
    CHECK(world.cache.resolve(kB, world.now) == kOther);
  }
  World world;
  world.cache.confirm(kB, world.now);
  CHECK_FALSE(world.cache.state(kB));
  world.become(kB, State::incomplete);
  world.cache.confirm(kB, world.now);
  CHECK(world.cache.state(kB) == State::incomplete);
  world.cache.handle_answer(kB, kMac, true, true, world.now);
  // A router sets the timers (RFC 4861, 6.3.4).
  world.cache.set_times(2 * kSecond, 100 * kMillisecond);
  world.cache.confirm(kB, world.now);
  CHECK(world.next().empty());
  CHECK(world.cache.state(kB) == State::stale);
  static_cast<void>(world.cache.resolve(kA, world.now));
  const Nanoseconds start = world.now;
  for (uint32_t i = 0; i < 3; ++i) world.next();
  CHECK(world.now == start + 200 * kMillisecond);
}

TEST_CASE("a full table: strangers take nothing away, what is not used gives way") {
  World world{.cache = Neighbours({.places = 8})};
  const auto address = [](uint32_t i) { return ipv4_address(0x0A000200u + i); };
  for (uint32_t i = 0; i < 4; ++i) world.become(address(i), State::reachable);
  for (uint32_t i = 100; i < 200; ++i) world.cache.handle_question(address(i), kOther, world.now);
  CHECK(world.cache.used() == 8);
  for (uint32_t i = 0; i < 4; ++i) CHECK(world.cache.state(address(i)) == State::reachable);
  // Entries for our own packets: learned entries go first, then our oldest.
  for (uint32_t i = 4; i < 8; ++i) {
    ++world.now;
    CHECK_FALSE(world.cache.resolve(address(i), world.now));
    CHECK_FALSE(world.cache.wait(address(i), i));
  }
  for (uint32_t i = 0; i < 8; ++i) CHECK(world.cache.state(address(i)));
  CHECK(world.cache.counters().evicted == 4);
  ++world.now;
  CHECK_FALSE(world.cache.resolve(address(8), world.now));
  CHECK_FALSE(world.cache.state(address(4)));  // the oldest of the unresolved entries
  const auto released = world.released();
  REQUIRE(released.size() == 1);
  CHECK(released[0].packet == 4);
  CHECK(released[0].failed);
  // Learned entries that have also answered still count as learned.
  World gateway{.cache = Neighbours({.places = 4})};
  gateway.become(address(0), State::stale);
  for (uint32_t i = 1; i < 4; ++i) {
    gateway.cache.handle_question(address(i), kOther, gateway.now);
    gateway.cache.handle_answer(address(i), kOther, true, true, gateway.now);
  }
  for (uint32_t i = 10; i < 13; ++i) CHECK_FALSE(gateway.cache.resolve(address(i), gateway.now));
  CHECK(gateway.cache.state(address(0)) == State::stale);
  CHECK_FALSE(gateway.cache.resolve(address(13), gateway.now));  // nor does an unresolved entry replace it
  CHECK(gateway.cache.state(address(0)) == State::stale);
}

TEST_CASE("neighbour cache: random events: lookups are right, packets return once, solicitations are limited") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    World world{.cache = Neighbours({.places = 12, .seed = seed})};
    std::set<uint32_t> waiting;
    uint32_t packet = 0;
    for (int step = 0; step < 600; ++step) {
      const IpAddress address = ipv4_address(0x0A000200u + static_cast<uint32_t>(random() % 30));
      const MacAddress mac = random() % 4 == 0 ? kOther : kMac;
      switch (random() % 8) {
        case 0: case 1: case 2:
          if (!world.cache.resolve(address, world.now) && random() % 2 == 0) {
            waiting.insert(++packet);
            if (const auto dropped = world.cache.wait(address, packet)) REQUIRE(waiting.erase(*dropped) == 1);
          }
          break;
        case 3: world.cache.handle_answer(address, mac, random() % 2 == 0, random() % 2 == 0, world.now); break;
        case 4: world.cache.handle_question(address, mac, world.now); break;
        case 5: world.cache.confirm(address, world.now); break;
        case 7: world.now += static_cast<Nanoseconds>(random() % 3000) * kMillisecond; break;
      }
      std::map<std::string, int> asked;
      for (const auto& question : world.ask()) REQUIRE(++asked[text_of(question.target)] == 1);
      REQUIRE(world.cache.next_event() > world.now);
      for (const auto& each : world.released()) REQUIRE(waiting.erase(each.packet) == 1);
      REQUIRE(world.cache.used() <= 12);
      uint32_t found = 0;
      for (uint32_t i = 0; i < 30; ++i) found += world.cache.state(ipv4_address(0x0A000200u + i)) ? 1 : 0;
      REQUIRE(found == world.cache.used());
    }
    world.now += 1000 * kSecond;
    while (world.cache.next_event() != ~Nanoseconds{0}) world.next();
    for (const auto& each : world.released()) REQUIRE(waiting.erase(each.packet) == 1);
    REQUIRE(waiting.empty());
  }
}

}  // namespace unet::ip::neighbours_test
