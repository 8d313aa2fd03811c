// mux_shares_test.cc - users: one share each, by weight and however many endpoints; limits, in virtual time.
#include <catch2/catch.hpp>

#include <map>

#include "ni/engine/test_ni.h"

namespace unet::engine::mux_shares_test {
namespace {

const MacAddress kPeer{2, 0, 0, 0, 0, 9};

void fill(TestEndpoint& e, uint32_t size, ClientPage& page) {
  static const auto data = pattern(kMessageMax, 1);
  while (e.send(0, {data.data(), size})) {
  }
  e.ring(page);
}

// Endpoints of users, each with channel 0 to the same sink inside the NI or, with a wire, to a peer.
struct Users {
  TestWire wire;
  TestNi ni{{&wire}};
  std::map<uint32_t, uint32_t> user_of;  // by tag

  TestEndpoint& to_wire(uint32_t user, uint32_t weight = 1) {
    TestEndpoint& e = ni.add_endpoint(kSmallEndpoint, weight, user);
    user_of[0x7000'0000 + e.number] = user;
    ni.wire(e, 0, 0x4000'0000 + e.number, 0x7000'0000 + e.number, kPeer);
    return e;
  }
  // `sink` loses what it has no room for, which does not matter here: what was sent counts.
  TestEndpoint& to_sink(uint32_t user, TestEndpoint& sink) {
    TestEndpoint& e = ni.add_endpoint(kSmallEndpoint, 1, user);
    ni.command(OpenHairpin{e.number, 0, sink.number, 0});
    return e;
  }
  // Frames of each user among `frames` frames, a few at a time, while all endpoints flood. A frame costs its payload and 64.
  std::map<uint32_t, double> share_of(uint32_t frames, const std::map<uint32_t, uint32_t>& size_of) {
    std::map<uint32_t, double> cost;
    for (const auto& [tag, each] : shares_of_endpoints(frames, size_of)) cost[user_of.at(tag)] += each;
    return cost;
  }
  // Counts frames of each endpoint, by tag.
  std::map<uint32_t, double> shares_of_endpoints(uint32_t frames, const std::map<uint32_t, uint32_t>& size_of) {
    std::map<uint32_t, double> cost;
    for (uint32_t sent = 0; sent < frames; sent += 5) {
      for (const auto& e : ni.endpoints) fill(*e, size_of.at(user_of.at(0x7000'0000 + e->number)), ni.page);
      wire.transmit_room = 5;
      ni.poll();
      for (; !wire.sent.empty(); wire.sent.pop_front()) {
        FrameView view;
        REQUIRE(parse_frame(wire.sent.front(), view) == FrameError::none);
        cost[static_cast<uint32_t>(view.tag)] += static_cast<double>(wire.sent.front().size() + 64 - 38);
      }
    }
    return cost;
  }
  // Sends without end for a time, in steps of 100 us; returns messages that `e` sent.
  struct Sent {
    uint64_t messages, bytes;
  };
  Sent flood(std::initializer_list<TestEndpoint*> senders, TestEndpoint& of, uint32_t size, Nanoseconds duration) {
    const Sent before{of.counter(EndpointCounter::sent_messages), of.counter(EndpointCounter::sent_bytes)};
    for (const Nanoseconds end = ni.now + duration; ni.now < end; ni.now += 100 * kMicrosecond) {
      for (TestEndpoint* e : senders) fill(*e, size, ni.page);
      ni.poll();
    }
    return {of.counter(EndpointCounter::sent_messages) - before.messages, of.counter(EndpointCounter::sent_bytes) - before.bytes};
  }
};

// Sends messages in the middle of a turn.
struct Late {
  TestEndpoint* endpoint = nullptr;
  uint32_t messages = 0;
};

// A port that lets the test act in the middle of a turn.
class HookedPort final : public TestPort {
 public:
  HookedPort(TestWire& wire, Late& late) : TestPort(wire), late_(late) {}
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override {
    for (; late_.messages != 0; --late_.messages) UNET_CHECK(late_.endpoint->send(0, pattern(40, 1)));
    return TestPort::allocate(frames);
  }

 private:
  Late& late_;
};

}  // namespace

TEST_CASE("a user gets its share by its weight, however many endpoints the others have and whatever they send") {
  Users s;
  s.wire.transmit_room = 0;
  s.to_wire(1);
  for (int i = 0; i < 40; ++i) s.to_wire(2);
  for (int i = 0; i < 3; ++i) s.to_wire(3);
  s.ni.command(SetUser{.user = 3, .weight = 2, .limits = {}});
  auto cost = s.share_of(6'000, {{1, 40}, {2, kMessageMax}, {3, 900}});
  CHECK(cost[2] == Approx(cost[1]).epsilon(0.05));
  CHECK(cost[3] == Approx(2 * cost[1]).epsilon(0.05));
  // Weights from now on.
  s.ni.command(SetUser{.user = 3, .weight = 1, .limits = {}});
  s.ni.command(SetUser{.user = 1, .weight = 4, .limits = {}});
  cost = s.share_of(6'000, {{1, 40}, {2, kMessageMax}, {3, 900}});
  CHECK(cost[1] == Approx(4 * cost[2]).epsilon(0.05));
  CHECK(cost[3] == Approx(cost[2]).epsilon(0.05));
}

TEST_CASE("weights of endpoints divide their user's share and nobody else's") {
  Users s;
  s.wire.transmit_room = 0;
  const auto tag = [](const TestEndpoint& e) { return 0x7000'0000 + e.number; };
  const uint32_t light = tag(s.to_wire(1, 1)), heavy = tag(s.to_wire(1, 3)), modest = tag(s.to_wire(2));
  const uint32_t size = GENERATE(40u, 900u, 5'000u, uint32_t{kMessageMax});
  auto cost = s.shares_of_endpoints(12'000, {{1, size}, {2, 900}});
  CHECK(cost[heavy] == Approx(3 * cost[light]).epsilon(0.05));
  CHECK(cost[modest] == Approx(cost[light] + cost[heavy]).epsilon(0.05));
  // Whatever their weight and number.
  std::vector<uint32_t> heaviest;
  for (int i = 0; i < 3; ++i) heaviest.push_back(tag(s.to_wire(1, kEndpointWeightMax)));
  cost = s.shares_of_endpoints(60'000, {{1, size}, {2, 900}});
  double of_user = cost[light] + cost[heavy];
  for (const uint32_t each : heaviest) of_user += cost[each];
  CHECK(cost[modest] == Approx(of_user).epsilon(0.05));
  for (const uint32_t each : heaviest) CHECK(cost[each] == Approx(of_user * kEndpointWeightMax / 304).epsilon(0.1));
  CHECK(cost[light] > 0);
}

TEST_CASE("a user that begins to send waits for one slice of the others, not for their turns") {
  Users s;
  const uint32_t weight = GENERATE(1u, uint32_t{kEndpointWeightMax});
  std::vector<TestEndpoint*> floods;
  for (int i = 0; i < 10; ++i) floods.push_back(&s.to_wire(1, weight));
  TestEndpoint& modest = s.to_wire(2);
  for (int round = 0; round < 50; ++round) {
    s.ni.run();
    s.wire.sent.clear();
    for (TestEndpoint* e : floods) fill(*e, 40, s.ni.page);
    REQUIRE(modest.send(0, pattern(40, 1)));
    modest.ring(s.ni.page);
    s.ni.poll();
    size_t before = 0;
    for (const auto& frame : s.wire.sent) {
      FrameView view;
      REQUIRE(parse_frame(frame, view) == FrameError::none);
      if (s.user_of.at(static_cast<uint32_t>(view.tag)) == 2) break;
      ++before;
    }
    CHECK(before < s.wire.sent.size());
    CHECK(before <= 256 / (40 + 64) + 2);  // a slice, and the message that it ends with
    s.wire.sent.clear();
  }
}

TEST_CASE("a user that begins to send in the midst of a turn is seen among many endpoints with a message or two each") {
  TestWire wire;
  Late late_sender;
  TestNi ni(std::make_unique<HookedPort>(wire, late_sender));
  std::vector<TestEndpoint*> many;
  for (int i = 0; i < 41; ++i) {
    TestEndpoint& e = ni.add_endpoint(kSmallEndpoint, 1, i == 40 ? 2 : 1);
    ni.wire(e, 0, 0x4000'0000 + e.number, 0x7000'0000 + e.number, kPeer);
    many.push_back(&e);
  }
  TestEndpoint& modest = *many.back();
  many.pop_back();
  ni.poll(2);
  ni.run();
  REQUIRE(modest.watched());
  for (TestEndpoint* e : many) {
    REQUIRE((e->send(0, pattern(40, 1)) && e->send(0, pattern(40, 2))));
  }
  late_sender = {&modest, 1};
  ni.poll();
  REQUIRE(late_sender.messages == 0);
  REQUIRE(wire.sent.size() == 81);
  size_t before = 0;
  for (FrameView view; before < 80; ++before) {
    REQUIRE(parse_frame(wire.sent[before], view) == FrameError::none);
    if (static_cast<uint32_t>(view.tag) == 0x7000'0000 + modest.number) break;
  }
  CHECK(before <= 20);
}

TEST_CASE("short messages of a user arrive while long ones of others are copied inside of the NI") {
  constexpr EndpointOptions kSink{.send_depth = 64, .receive_depth = 64, .buffers = 256, .buffer_size = 1'024, .send_bytes = kMessageMax};
  const bool scattered = GENERATE(false, true);
  Users s;
  TestEndpoint& sink = s.ni.add_endpoint(kSink);
  TestEndpoint& one = s.to_sink(1, sink);
  TestEndpoint& two = s.to_sink(2, sink);
  TestEndpoint& modest = s.to_sink(3, sink);
  s.ni.run();
  const auto long_one = pattern(kMessageMax, 1), long_two = pattern(kMessageMax - 100, 2);
  if (scattered) {  // the long message has two runs of buffers
    REQUIRE(one.send(0, {long_one.data(), 40'000}));
    REQUIRE(two.send(0, {long_two.data(), 1'000}));
    s.ni.run();
    REQUIRE(sink.receive());
    REQUIRE(sink.receive(true));
  }
  for (int round = 0; round < 20; ++round) {
    REQUIRE(one.send(0, long_one));
    REQUIRE(two.send(0, long_two));
    for (uint32_t i = 0; i < 4; ++i) REQUIRE(modest.send(0, pattern(40, 3 + i)));
    for (const TestEndpoint* e : {&one, &two, &modest}) e->ring(s.ni.page);
    s.ni.poll();
    for (uint32_t i = 0; i < 4; ++i) {
      const auto arrived = sink.receive();
      REQUIRE(arrived);
      CHECK(arrived->bytes == pattern(40, 3 + i));
    }
    s.ni.run();
    auto first = sink.receive(), second = sink.receive();
    REQUIRE((first && second));
    if (first->bytes.size() != long_one.size()) std::swap(first, second);
    CHECK(first->bytes == long_one);
    CHECK(second->bytes == long_two);
  }
  CHECK(endpoint_drops(sink) == 0);
}

TEST_CASE("short messages of a user arrive while a long put of another is copied inside of the NI") {
  const bool notify = GENERATE(false, true);
  Users s;
  TestEndpoint& sink = s.ni.add_endpoint();
  TestEndpoint& one = s.to_sink(1, sink);
  TestEndpoint& modest = s.to_sink(2, sink);
  std::vector<std::byte> region(kMessageMax + 64);
  s.ni.command(SetRegion{sink.number, region});
  s.ni.run();
  const auto data = pattern(kMessageMax, 1);
  REQUIRE(one.put(0, 64, data, notify));
  REQUIRE(modest.send(0, pattern(40, 2)));
  for (const TestEndpoint* e : {&one, &modest}) e->ring(s.ni.page);
  s.ni.run();
  const auto first = sink.receive(), second = sink.receive();
  REQUIRE(first);
  CHECK(first->bytes == pattern(40, 2));
  CHECK(second.has_value() == notify);
  CHECK(std::equal(data.begin(), data.end(), region.begin() + 64));
  CHECK(sink.counter(EndpointCounter::received_bytes) == kMessageMax + 40);
}

TEST_CASE("an endpoint that is found to be full again while it is served is in one list only") {
  TestWire wire;
  Late late_sender;
  TestNi ni(std::make_unique<HookedPort>(wire, late_sender));
  TestEndpoint& first = ni.add_endpoint();
  TestEndpoint& late = ni.add_endpoint();
  for (TestEndpoint* e : {&first, &late}) ni.wire(*e, 0, 0x4000'0000 + e->number, 0x7000'0000 + e->number, kPeer);
  ni.run();
  REQUIRE(late.watched());
  for (int i = 0; i < 64; ++i) REQUIRE(first.send(0, pattern(40, 1)));
  late_sender = {&late, 64};
  // Its bell has it visited although its queue was empty when the engine looked at it.
  first.ring(ni.page);
  late.ring(ni.page);
  ni.poll(2);
  CHECK(late_sender.messages == 0);
  CHECK(late.counter(EndpointCounter::sent_messages) == 64);
  CHECK(ni.poll() == 0);
  CHECK(ni.engine->prepare_sleep(ni.now));
  ni.engine->wake_up();
}

TEST_CASE("rest gives no right to more than a share later") {
  Users s;
  s.wire.transmit_room = 0;
  s.to_wire(1);
  const std::map<uint32_t, uint32_t> sizes{{1, 1'000}, {2, 1'000}};
  s.share_of(2'000, sizes);
  s.to_wire(2);
  auto cost = s.share_of(2'000, sizes);
  CHECK(cost[2] == Approx(cost[1]).epsilon(0.05));
}

TEST_CASE("limits in messages and bytes hold for a user and for each of its endpoints") {
  Users s;
  TestEndpoint& sink = s.ni.add_endpoint();
  TestEndpoint& a = s.to_sink(1, sink);
  TestEndpoint& b = s.to_sink(1, sink);
  TestEndpoint& free = s.to_sink(2, sink);
  s.ni.poll();
  const auto set = [&](const SendLimits& limits) { s.ni.command(SetUser{.user = 1, .weight = 1, .limits = limits}); };

  SECTION("messages of the user, after a burst") {
    set({.messages = 5'000, .burst = 20 * kMillisecond});
    const uint64_t first = s.flood({&a}, a, 40, 100 * kMicrosecond).messages;
    CHECK(first <= 101);  // 20 ms' worth, and the one that overdraws
    CHECK(first >= 60);   // all there is in the queue
    const uint64_t second = s.flood({&a}, a, 40, kSecond).messages;
    CHECK(first + second >= 5'000);
    CHECK(first + second <= 5'000 + 102);
    const uint64_t both = s.flood({&a, &b}, a, 40, kSecond).messages;
    CHECK(both >= 2'400);  // shared with the other endpoint
    CHECK(both <= 2'600);
  }
  SECTION("messages of each endpoint") {
    set({.endpoint_messages = 1'000, .burst = kMillisecond});
    CHECK(s.flood({&a, &b}, a, 40, kSecond).messages == Approx(1'000).margin(3));
    CHECK(s.flood({&a, &b}, b, 40, kSecond).messages == Approx(1'000).margin(3));
  }
  SECTION("bytes of the user") {
    set({.bytes = 1'000'000, .burst = kMillisecond});
    CHECK(s.flood({&a}, a, 1'000, kSecond).bytes == Approx(1'000'000).margin(3'000));
    CHECK(s.flood({&a}, a, kMessageMax, 2 * kSecond).bytes == Approx(2'000'000).margin(2 * kMessageMax));
  }
  SECTION("bytes of each endpoint") {
    set({.endpoint_bytes = 500'000, .burst = kMillisecond});
    CHECK(s.flood({&a, &b}, a, 1'000, kSecond).bytes == Approx(500'000).margin(3'000));
  }
  SECTION("the stricter one counts") {
    set({.messages = 1'000, .bytes = 10'000, .endpoint_messages = 2'000, .burst = kMillisecond});
    CHECK(s.flood({&a}, a, 40, 10 * kSecond).messages == Approx(2'500).margin(5));
  }
  SECTION("descriptors that are dropped count as messages") {
    set({.messages = 1'000, .burst = kMillisecond});
    const uint64_t before = a.counter(EndpointCounter::unknown_channel);
    for (const Nanoseconds end = s.ni.now + kSecond; s.ni.now < end; s.ni.now += 100 * kMicrosecond) {
      while (a.send(7, pattern(10, 1))) {
      }
      a.ring(s.ni.page);
      s.ni.poll();
    }
    CHECK(a.counter(EndpointCounter::unknown_channel) - before == Approx(1'000).margin(3));
  }
  // A user without a limit is unaffected: it sends what 100 us and a queue of 64 allow.
  CHECK(s.flood({&a, &free}, free, 40, 10 * kMillisecond).messages == 64 * 100);
}

TEST_CASE("a limit in bytes holds over a wire, frame by frame") {
  Users s;
  TestEndpoint& a = s.to_wire(1);
  s.ni.command(SetUser{.user = 1, .weight = 1, .limits = {.bytes = 10'000'000, .burst = kMillisecond}});
  uint64_t payload = 0;
  size_t most = 0;
  for (const Nanoseconds end = s.ni.now + kSecond; s.ni.now < end; s.ni.now += 100 * kMicrosecond) {
    fill(a, kMessageMax, s.ni.page);
    s.ni.poll();
    most = std::max(most, s.wire.sent.size());
    for (const auto& frame : s.wire.sent) payload += frame.size() - 38;
    s.wire.sent.clear();
  }
  CHECK(payload == Approx(10'000'000).margin(20'000));
  CHECK(most <= 9);  // not a message of 64 KiB at once
}

TEST_CASE("a number that is used again has no past in any list") {
  Users s;
  TestEndpoint& sink = s.ni.add_endpoint();
  TestEndpoint& held = s.to_sink(1, sink);
  TestEndpoint& other = s.to_sink(1, sink);
  s.ni.run();
  s.ni.command(SetUser{.user = 1, .weight = 1, .limits = {.endpoint_messages = 1, .burst = kMillisecond}});
  fill(held, 40, s.ni.page);
  s.ni.poll(3);  // waits for its limit now
  s.ni.command(DetachEndpoint{held.number});
  s.ni.poll(3);

  TestEndpoint again(held.number, kSmallEndpoint);
  s.ni.command(AttachEndpoint{.endpoint = again.number, .client = TestNi::kClient, .doorbell = again.number, .segment = again.segment,
                              .geometry = again.geometry, .user = 1});
  s.ni.command(OpenHairpin{again.number, 0, sink.number, 0});
  s.ni.command(SetUser{.user = 1, .weight = 1, .limits = {.messages = 1, .burst = kMillisecond}});
  s.ni.poll(3);
  fill(again, 40, s.ni.page);
  fill(other, 40, s.ni.page);
  s.ni.poll(3);  // both wait in the share's list, for the user's limit
  s.ni.command(DetachEndpoint{again.number});
  s.ni.command(SetUser{.user = 1, .weight = 1, .limits = {}});
  s.ni.poll(3);
  CHECK(other.counter(EndpointCounter::sent_messages) == 64);
}

TEST_CASE("a user that changes between two limits without end gets no more than the larger one") {
  Users s;
  TestEndpoint& sink = s.ni.add_endpoint();
  TestEndpoint& a = s.to_sink(1, sink);
  s.ni.run();
  // Some processes of the user have one rule of the policy, some another.
  const SendLimits one{.bytes = 1'000'000, .burst = kMillisecond};
  const SendLimits other = GENERATE(SendLimits{.bytes = 1'000'000, .burst = kMillisecond},
                                    SendLimits{.bytes = 500'000, .burst = kMillisecond},
                                    SendLimits{.messages = 100'000, .bytes = 1'000'000, .burst = kMillisecond});
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < 1'000; ++i) {
    s.ni.command(SetUser{.user = 1, .weight = 1 + i % 2, .limits = i % 2 == 0 ? one : other});
    bytes += s.flood({&a}, a, 2'000, kMillisecond).bytes;
  }
  CHECK(bytes <= 1'010'000);
  CHECK(bytes >= 490'000);
}

TEST_CASE("who waits for its limit is waited for, let go and forgotten") {
  Users s;
  TestEndpoint& sink = s.ni.add_endpoint();
  TestEndpoint& a = s.to_sink(1, sink);
  TestEndpoint& b = s.to_sink(1, sink);
  s.ni.run();
  const bool own = GENERATE(false, true);
  SendLimits limits{.burst = kMillisecond};
  (own ? limits.endpoint_messages : limits.messages) = 1;
  s.ni.command(SetUser{.user = 1, .weight = 1, .limits = limits});
  fill(a, 40, s.ni.page);
  s.ni.poll(3);
  const uint64_t sent = a.counter(EndpointCounter::sent_messages);
  CHECK(sent <= 2);
  // An engine with nothing else to do may sleep until then, and no longer.
  CHECK(s.ni.engine->next_event() <= s.ni.now + kSecond);
  CHECK(s.ni.engine->next_event() > s.ni.now + kSecond / 2);

  SECTION("the clock") {
    s.ni.now += kSecond;
    s.ni.poll();
    CHECK(a.counter(EndpointCounter::sent_messages) == sent + 1);
  }
  SECTION("another limit: debts count by it") {
    limits = {.messages = 1'000'000};
    s.ni.command(SetUser{.user = 1, .weight = 1, .limits = limits});
    s.ni.poll(2);
    CHECK(a.counter(EndpointCounter::sent_messages) == 64);
    CHECK(s.ni.engine->next_event() == ~Nanoseconds{0});
  }
  SECTION("no limit any longer") {
    s.ni.command(SetUser{.user = 1, .weight = 1, .limits = {}});
    s.ni.poll(2);
    CHECK(a.counter(EndpointCounter::sent_messages) == 64);
  }
  SECTION("it goes away; the user's debt stays") {
    fill(b, 40, s.ni.page);
    s.ni.poll(3);
    s.ni.command(DetachEndpoint{a.number});
    s.ni.command(DetachEndpoint{b.number});
    s.ni.poll(2);
    CHECK(s.ni.event<EndpointDetached>());
    CHECK(s.ni.event<EndpointDetached>());
    TestEndpoint& c = s.to_sink(1, sink);
    fill(c, 40, s.ni.page);
    s.ni.poll(3);
    CHECK(c.counter(EndpointCounter::sent_messages) <= (own ? 2 : 0));
    s.ni.now += 10 * kSecond;
    s.ni.poll(3);
    CHECK(c.counter(EndpointCounter::sent_messages) >= 1);
  }
}

TEST_CASE("users come, flood, rest and go at random: nothing is lost, repeated or left over") {
  Users s;
  TestEndpoint& sink = s.ni.add_endpoint();
  std::vector<TestEndpoint*> senders;
  std::vector<uint64_t> posted;
  for (uint32_t i = 0; i < 12; ++i) {
    senders.push_back(&s.to_sink(i % 4, sink));
    posted.push_back(0);
  }
  uint32_t random = GENERATE(1u, 2u, 3u);
  const auto next = [&](uint32_t below) { return (random = random * 1664525u + 1013904223u) / 65536 % below; };
  for (int step = 0; step < 3'000; ++step) {
    const uint32_t i = next(12);
    for (uint32_t n = next(70); n != 0 && senders[i]->send(0, pattern(next(4) == 0 ? next(3'000) : next(48), n)); --n) ++posted[i];
    senders[i]->ring(s.ni.page);
    if (next(50) == 0) {
      SendLimits limits{.messages = next(2) * 100'000u, .bytes = next(2) * 9'000'000u, .endpoint_messages = next(2) * 50'000u};
      s.ni.command(SetUser{.user = next(4), .weight = 1 + next(9), .limits = limits});
    }
    s.ni.now += next(200) * kMicrosecond;
    s.ni.poll();
    while (sink.receive()) {
    }
  }
  for (uint32_t user = 0; user < 4; ++user) s.ni.command(SetUser{.user = user, .weight = 1, .limits = {}});
  s.ni.run();
  for (uint32_t i = 0; i < 12; ++i) CHECK(senders[i]->counter(EndpointCounter::sent_messages) == posted[i]);
  CHECK(s.ni.engine->next_event() == ~Nanoseconds{0});
}

TEST_CASE("inside the NI, too, users that always have messages get equal parts of the engine") {
  Users s;
  TestEndpoint& sink = s.ni.add_endpoint();
  TestEndpoint& a = s.to_sink(1, sink);
  TestEndpoint& b = s.to_sink(2, sink);
  s.ni.poll();
  const uint32_t size = GENERATE(40u, 1'000u);
  // Whenever the engine delivers something, the clients have filled up what it took.
  for (int turn = 0; turn < 2'000; ++turn) {
    fill(a, size, s.ni.page);
    fill(b, size, s.ni.page);
    s.ni.poll();
    while (sink.receive()) {
    }
  }
  const auto sent = [](const TestEndpoint& e) { return static_cast<double>(e.counter(EndpointCounter::sent_messages)); };
  CHECK(sent(a) == Approx(sent(b)).epsilon(0.02));
}

}  // namespace unet::engine::mux_shares_test
