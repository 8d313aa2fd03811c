// signalling_resume_test.cc - signalling machines that go on where others stopped, at any moment: other NIs do not notice.
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "ni/service/signalling.h"
#include "ni/service/test_signal_network.h"
#include "unet/base/test_seeds.h"

namespace unet::service {

using namespace test;

namespace {

// A channel from `a` to `b`, which is host 1.
void open_channel(Network& net, Host& a, Host& b) {
  net.connect(a, "host1", "echo", 5 * kSecond);
  net.run_for(kMillisecond);
  REQUIRE(net.accept(b));
  net.run_for(kMillisecond);
}

SignallingOptions options_of_a() {
  SignallingOptions options;
  options.host = "a";
  options.port_mtus = {1500};
  options.incarnation = 5;
  return options;
}

}  // namespace

TEST_CASE("an NI that takes over goes on with its channels, and the other NI does not notice") {
  Network net(2, 8);
  Host &a = net.host(0), &b = net.host(1);
  const auto both = [&](uint32_t which) {
    if ((which & 1) != 0) net.take_over(a);
    if ((which & 2) != 0) net.take_over(b);
  };
  const uint32_t which = GENERATE(1u, 2u, 3u);
  net.connect(a, "host1", "echo", 5 * kSecond);
  SECTION("at any step of a channel's set-up") {
    const uint32_t step = GENERATE(0u, 1u, 2u, 3u, 4u, 5u);
    for (uint32_t i = 0; i < 20; ++i) {
      if (i == step) both(which);
      net.run_for(50 * kMicrosecond);
      if (i >= 2 && !b.asked.empty()) CHECK(net.accept(b));
    }
    net.run_for(2 * kSecond);
    CHECK(a.connected == 1);
    CHECK(b.confirmed == 1);
    CHECK(b.asked.empty());
  }
  SECTION("after it, again and again") {
    net.run_for(kMillisecond);
    REQUIRE(net.accept(b));
    net.run_for(kMillisecond);
    for (int i = 0; i < 20; ++i) {
      both(which);
      net.run_for(700 * kMillisecond);
    }
    CHECK(a.machine->known_hosts().size() == (which == 2 ? 1 : 0));
    a.machine->resume_host("host1", {0, mac_of(1)});
    CHECK(a.machine->known_hosts().size() == 1);
    open_channel(net, a, b);
    CHECK(a.connected == 2);
    CHECK(b.confirmed == 2);
    const uint32_t side = GENERATE(0u, 1u);
    net.close(net.host(side), net.host(side).open.begin()->first);
    net.run_for(kMillisecond);
  }
  CHECK(a.failures.empty());
  CHECK((a.machine->counters().peers_restarted == 0 && b.machine->counters().peers_restarted == 0));
  CHECK((a.machine->counters().stale == 0 && b.machine->counters().stale == 0));
  require_pairs(net, 2);
  CHECK(a.open.size() == 1);
}

TEST_CASE("what was sent before a takeover does no harm after it") {
  Network net(2, 9);
  Host &a = net.host(0), &b = net.host(1);
  for (int i = 0; i < 3; ++i) open_channel(net, a, b);
  net.close(a, a.open.begin()->first);
  net.close(b, b.open.begin()->first);
  net.run_for(kMillisecond);
  REQUIRE(a.open.size() == 1);
  const uint64_t connected = a.connected, confirmed = b.confirmed, lost = a.lost + b.lost;
  net.take_over(a);
  net.take_over(b);
  net.replay();
  net.run_for(10 * kSecond);  // a request of a closed channel is asked again, and withdrawn
  CHECK(a.open.size() == 1);
  require_pairs(net, 2);
  CHECK(b.asked.empty());
  CHECK((a.connected == connected && b.confirmed == confirmed && a.lost + b.lost == lost));
}

TEST_CASE("an NI that takes over finds out what was closed in the pause") {
  Network net(2, 10);
  Host &a = net.host(0), &b = net.host(1);
  for (int i = 0; i < 100; ++i) open_channel(net, a, b);
  net.silence(a);
  SECTION("by the other side, whose close nobody hears") {
    for (int i = 0; i < 60; ++i) net.close(b, b.open.begin()->first);
    net.run_for(1500 * kMillisecond);
  }
  SECTION("by this side, whose close never left") {
    for (int i = 0; i < 60; ++i) net.close(a, a.open.begin()->first);
  }
  SECTION("because it took longer than it had announced") { net.run_for(5 * kSecond); }
  SECTION("because the other NI was restarted") { net.start(b); }
  const size_t left = std::min(a.open.size(), b.open.size());
  net.hear(a);
  net.take_over(a);
  net.run_for(3 * kSecond);
  CHECK(a.open.size() == left);
  CHECK(b.open.size() == left);
  require_pairs(net, 2);
}

TEST_CASE("what an NI cannot have had is not taken over") {
  Signalling machine(options_of_a());
  machine.resume(7, 100);
  using Stage = Signalling::Stage;
  const Shared good{.remote = {0, mac_of(1)}, .incarnation = 9, .lost_after = kSecond, .number = 3, .remote_tag = Tag{0x20002}};
  REQUIRE(machine.resume_channel(Tag{1}, Stage::connected, good, 0));
  REQUIRE(machine.resume_channel(Tag{2}, Stage::accepted, good, 0));
  CHECK_FALSE(machine.resume_channel(Tag{1}, Stage::connected, good, 0));
  CHECK_FALSE(machine.resume_channel(Tag{3}, Stage::confirmed, good, 0));  // of a request that became another channel
  CHECK(machine.resume_request(good, 0) == 0);
  const auto refused = [&](auto change) {
    Shared other = good;
    other.number = 4;
    change(other);
    return !machine.resume_channel(Tag{4}, Stage::confirmed, other, 0) && machine.resume_request(other, 0) == 0;
  };
  CHECK(refused([](Shared& s) { s.remote.port = 1; }));
  CHECK(refused([](Shared& s) { s.incarnation = 0; }));
  CHECK(refused([](Shared& s) { s.incarnation = 7; }));   // our own
  CHECK(refused([](Shared& s) { s.incarnation = 10; }));  // it cannot have had two lives at once
  CHECK(refused([](Shared& s) { s.remote_tag = Tag{0}; }));
  REQUIRE(machine.resume_connect(99, "b", "echo", Tag{5}, 1, kSecond, 0));
  CHECK_FALSE(machine.resume_connect(99, "b", "echo", Tag{6}, 1, kSecond, 0));
  CHECK_FALSE(machine.resume_connect(1000, "b", "echo", Tag{6}, 1, kSecond, 0));
  CHECK_FALSE(machine.resume_connect(0, "b", "echo", Tag{6}, 1, kSecond, 0));
  CHECK(machine.holdings().channels == 2);
  CHECK(machine.connect("b", "echo", Tag{6}, 1, kSecond, 0) >= 100);
}

TEST_CASE("an NI that takes over asks thousands of others within some milliseconds, and no more at once than its engine takes") {
  Signalling machine(options_of_a());
  machine.resume(7, 100);
  constexpr uint32_t kOthers = 1000, kRoom = 256;
  for (uint32_t i = 1; i <= kOthers; ++i) {
    const MacAddress mac{2, 0, 0, 0, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)};
    const Shared shared{.remote = {0, mac}, .incarnation = 9, .lost_after = kSecond, .number = i, .remote_tag = Tag{0x20000 + i}};
    REQUIRE(machine.resume_channel(Tag{i}, Signalling::Stage::connected, shared, kSecond));
  }
  machine.resumed(kSecond);
  const Nanoseconds begin = kSecond + GENERATE(Nanoseconds{0}, 20 * kMillisecond);  // also when the first call comes late
  std::set<MacAddress> asked;
  for (Nanoseconds now = begin; asked.size() < kOthers && now < begin + 10 * kMillisecond; now += kMillisecond) {
    uint32_t at_once = 0;
    machine.handle_timeout(now + kMicrosecond);
    while (const auto out = machine.poll_transmit()) {
      ++at_once;
      asked.insert(out->to.mac);
    }
    CHECK(at_once <= kRoom);
  }
  CHECK(asked.size() == kOthers);
}

TEST_CASE("no more others are asked in a millisecond than an engine takes, however often it is time for some") {
  Signalling machine(options_of_a());
  machine.resume(7, 100);
  constexpr uint32_t kOthers = 900, kRoom = 2 * 256, kGroups = 9;  // room: one millisecond may end in it and another begin
  constexpr Nanoseconds kStep = 50 * kMicrosecond;
  for (uint32_t i = 1; i <= kOthers; ++i) {
    const MacAddress mac{2, 0, 0, 0, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)};
    const Shared shared{.remote = {0, mac}, .incarnation = 9, .lost_after = kSecond, .number = i, .remote_tag = Tag{0x20000 + i}};
    REQUIRE(machine.resume_channel(Tag{i}, Signalling::Stage::connected, shared, kSecond + i % kGroups * kStep));
  }
  std::vector<Nanoseconds> asked;  // when
  for (Nanoseconds now = kSecond; now < kSecond + 400 * kMillisecond; now += kStep) {
    machine.handle_timeout(now);
    while (machine.poll_transmit()) asked.push_back(now);
  }
  CHECK(asked.size() == kOthers);
  for (size_t i = kRoom; i < asked.size(); ++i) CHECK(asked[i] - asked[i - kRoom] >= kMillisecond);
}

// The NI is killed between any two steps. Every channel that is asked for opens, and none ends that neither side has closed.
TEST_CASE("on a good wire a takeover costs nobody a channel") {
  uint64_t takeovers = 0;
  const uint32_t seeds = unet::test::seeds(150);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    Network net(3, seed, {.delay = kMicrosecond, .jitter = 100 * kMillisecond, .duplicate = 0.1});
    net.set_crashes(0.1);
    uint64_t connects = 0, connected = 0;
    const auto accept_all = [&] {
      for (uint32_t i = 0; i < 3; ++i) {
        while (!net.host(i).asked.empty()) net.accept(net.host(i));
      }
    };
    for (int step = 0; step < 20; ++step) {
      Host& host = net.host(static_cast<uint32_t>(random() % 3));
      net.connect(host, "host" + std::to_string((host.index + 1 + random() % 2) % 3), "echo", 60 * kSecond);
      ++connects;
      if (random() % 2 == 0) accept_all();
      if (random() % 4 == 0) net.take_over(net.host(static_cast<uint32_t>(random() % 3)));
      net.run_for(random() % 300 * kMillisecond);
    }
    for (int i = 0; i < 40; ++i) {
      accept_all();
      net.run_for(100 * kMillisecond);
    }
    net.set_crashes(0);
    for (int i = 0; i < 60; ++i) {
      accept_all();
      net.run_for(100 * kMillisecond);
    }
    for (uint32_t i = 0; i < 3; ++i) {
      connected += net.host(i).connected;
      CHECK(net.host(i).lost == 0);
      CHECK(net.host(i).failures.empty());
      CHECK(net.host(i).confirming.empty());
    }
    CHECK(connected == connects);
    require_pairs(net, 3);
    takeovers += net.takeovers();
  }
  CHECK(takeovers > 2 * seeds);
}

}  // namespace unet::service
