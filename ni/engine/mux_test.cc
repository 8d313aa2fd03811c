// mux_test.cc - fairness, back-pressure and order of what endpoints send; slots lent to a port.
#include <catch2/catch.hpp>

#include <map>
#include <random>

#include "ni/engine/test_ni.h"

namespace unet::engine::mux_test {
namespace {

const MacAddress kPeer{2, 0, 0, 0, 0, 9};

uint32_t remote_tag(const TestEndpoint& e) { return 0x7000'0000 + e.number; }

// Endpoints that each have channel 0 on the wire; frames that went out are counted by their tag.
struct Senders {
  TestWire wire;
  TestNi ni;
  std::map<uint32_t, uint64_t> bytes_of;   // by tag: Ethernet bytes
  std::map<uint32_t, uint64_t> frames_of;

  explicit Senders(EngineOptions options = {}) : ni({&wire}, options) { wire.transmit_room = 0; }

  TestEndpoint& add(uint32_t weight = 1, uint32_t user = 0) {
    TestEndpoint& e = ni.add_endpoint(kSmallEndpoint, weight, user);
    ni.wire(e, 0, 0x4000'0000 + e.number, remote_tag(e), kPeer);
    return e;
  }
  // The wire takes `frames` more; what went out is counted.
  void transmit(uint32_t frames) {
    wire.transmit_room = frames;
    ni.poll();
    for (; !wire.sent.empty(); wire.sent.pop_front()) {
      FrameView view;
      REQUIRE(parse_frame(wire.sent.front(), view) == FrameError::none);
      bytes_of[static_cast<uint32_t>(view.tag)] += wire.sent.front().size();
      ++frames_of[static_cast<uint32_t>(view.tag)];
    }
  }
  static void fill(TestEndpoint& e, uint32_t size) {
    static const auto data = pattern(kMessageMax, 1);
    while (e.send(0, {data.data(), size})) {
    }
  }
};

}  // namespace

TEST_CASE("endpoints that flood a wire share it by their weights, whatever the size of their messages") {
  Senders s;
  TestEndpoint& large = s.add(1);
  TestEndpoint& small = s.add(1);
  TestEndpoint& heavy = s.add(3);
  const uint32_t room = GENERATE(1u, 5u, 20u);  // less than what the test puts into the queues at a time
  const auto fill_all = [&] {
    Senders::fill(large, kMessageMax);
    Senders::fill(small, 40);
    Senders::fill(heavy, 2'000);
    for (const auto& e : s.ni.endpoints) e->ring(s.ni.page);
  };
  uint32_t sent = 0;
  while (sent < 60'000) {
    fill_all();
    s.transmit(room);
    sent += room;
  }
  // A frame costs its bytes and 64; its Ethernet bytes are 38 more than its payload's.
  const auto cost = [&](const TestEndpoint& e) {
    return static_cast<double>(s.bytes_of[remote_tag(e)] + s.frames_of[remote_tag(e)] * (64 - 38));
  };
  CHECK(cost(large) == Approx(cost(small)).epsilon(0.05));
  CHECK(cost(heavy) == Approx(3 * cost(small)).epsilon(0.05));
}

TEST_CASE("more flooding endpoints than can be watched get equal shares") {
  Senders s;
  constexpr uint32_t kSenders = 200;
  for (uint32_t i = 0; i < kSenders; ++i) s.add();
  for (int round = 0; round < 12'000; ++round) {
    for (const auto& e : s.ni.endpoints) {
      Senders::fill(*e, 3'000);
      e->ring(s.ni.page);
    }
    s.transmit(4);
  }
  const double share = 12'000.0 * 4 / kSenders;
  for (const auto& e : s.ni.endpoints) CHECK(static_cast<double>(s.frames_of[remote_tag(*e)]) == Approx(share).epsilon(0.1));
}

TEST_CASE("a modest endpoint waits for one turn of a flooding one at most") {
  EngineOptions options;
  Senders s(options);
  TestEndpoint& flood = s.add();
  TestEndpoint& modest = s.add();
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 20; ++i) {
      Senders::fill(flood, kMessageMax);
      flood.ring(s.ni.page);
      s.transmit(7);
    }
    REQUIRE(modest.send(0, pattern(40, 1)));
    modest.ring(s.ni.page);
    const uint64_t before = s.bytes_of[remote_tag(flood)];
    for (int i = 0; s.frames_of[remote_tag(modest)] == static_cast<uint64_t>(round); ++i) {
      REQUIRE(i < 1'000);
      Senders::fill(flood, kMessageMax);
      s.transmit(1);
    }
    // Frames that were composed before, and the rest of the turn of the flood.
    CHECK(s.bytes_of[remote_tag(flood)] - before <= kBurst * 1514 + options.quantum_bytes + 1514);
  }
}

TEST_CASE("a port that takes few frames loses nothing, and repeats nothing") {
  std::mt19937 random(GENERATE(1u, 2u, 3u, 4u));
  const auto random_below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  TestWire left, right;
  right.capabilities.address = kPeer;
  left.capabilities.external_payload = random_below(2) == 0;
  TestNi from({&left}), to({&right});
  TestEndpoint& a = from.add_endpoint();
  TestEndpoint& b = to.add_endpoint();
  from.wire(a, 1, 0x10001, 0x20002, kPeer);
  to.wire(b, 2, 0x20002, 0x10001, left.capabilities.address);
  std::deque<std::vector<std::byte>> expected;
  uint32_t sent = 0, got = 0;
  left.transmit_room = 0;
  while (got < 300) {
    while (sent < 300) {
      const auto message = pattern(random_below(4) == 0 ? random_below(100) : random_below(kMessageMax), sent);
      if (a.writer.position() != a.header->send_consumed.value.load() || !a.send(1, message)) break;
      expected.push_back(message);
      ++sent;
    }
    a.ring(from.page);
    left.transmit_room = random_below(6);
    left.allocate_room = random_below(10);
    from.poll();
    left.complete(random_below(8));
    right.arriving.insert(right.arriving.end(), std::make_move_iterator(left.sent.begin()), std::make_move_iterator(left.sent.end()));
    left.sent.clear();
    to.poll();
    while (const auto message = b.receive()) {
      REQUIRE((message->bytes == expected.front()));
      expected.pop_front();
      ++got;
    }
  }
  CHECK(endpoint_drops(a) + endpoint_drops(b) + ni_drops(from) + ni_drops(to) == 0);
}

TEST_CASE("a port without room holds up neither another port nor messages inside the NI") {
  TestWire stuck, open;
  stuck.transmit_room = 0;
  TestNi ni({&stuck, &open});
  TestEndpoint& a = ni.add_endpoint();
  TestEndpoint& b = ni.add_endpoint();
  ni.wire(a, 0, 0x10001, 1, kPeer, 0);
  ni.wire(b, 0, 0x10002, 2, kPeer, 1);
  ni.hairpin(b, 1, a, 1);
  while (a.send(0, pattern(5'000, 1))) {
  }
  ni.run();
  REQUIRE(b.send(0, pattern(100, 1)));
  REQUIRE(b.send(1, pattern(101, 1), 4096));
  ni.run();
  CHECK(open.sent.size() == 1);
  CHECK(a.receive()->bytes.size() == 101);
  CHECK(stuck.sent.empty());
  // It does not keep the engine from sleeping, only from sleeping long.
  CHECK(ni.engine->next_event() <= ni.now + kMillisecond);
  stuck.transmit_room = ~0u;
  ni.run();
  CHECK(stuck.sent.size() == 64 * 4);
  CHECK(ni.engine->next_event() == ~Nanoseconds{0});
}

TEST_CASE("slots whose data a port reads are given back in order, while others are on their way") {
  TestWire wire;
  wire.capabilities.external_payload = true;
  TestNi ni({&wire});
  TestEndpoint& e = ni.add_endpoint();
  ni.wire(e, 0, 0x10001, 1, kPeer);
  const auto consumed = [&] { return e.header->send_consumed.value.load(); };

  REQUIRE(e.send(0, pattern(1'400, 1), 0));
  REQUIRE(e.send(0, pattern(40, 1)));  // copied, but after one that is lent
  ni.run();
  CHECK(wire.sent.size() == 2);
  CHECK(consumed() == 0);
  REQUIRE(e.send(0, pattern(1'400, 2), 4096));
  ni.run();
  CHECK(consumed() == 0);
  wire.complete(1);
  ni.poll();
  CHECK(consumed() == 2);  // the second generation is still being read
  wire.complete(1);
  ni.poll();
  CHECK(consumed() == 3);
  REQUIRE(e.send(0, pattern(40, 1)));
  ni.run();
  CHECK(consumed() == 4);

  // Always a few frames with the port, as under load: the client still gets slots back all the time.
  uint32_t last = consumed();
  for (int round = 0; round < 200; ++round) {
    while (e.send(0, pattern(1'400, 1))) {
    }
    e.ring(ni.page);
    ni.poll();
    wire.complete(4);
    ni.poll();
    if (round % 20 == 19) {
      CHECK(consumed() - last > 40);
      last = consumed();
    }
    CHECK(e.writer.position() - consumed() >= wire.unread.size());
  }
}

TEST_CASE("the client that waits for room is woken when a visit has made some") {
  TestNi ni;
  TestEndpoint& a = ni.add_endpoint();
  TestEndpoint& b = ni.add_endpoint();
  ni.hairpin(a, 0, b, 0);
  const int descriptor = ni.wake_descriptor(a);
  ni.run();
  uint64_t value = 0;
  REQUIRE(a.send(0, pattern(10, 1)));
  ni.run();
  CHECK(read(descriptor, &value, sizeof value) < 0);
  a.header->sender_waiting.value = 1;
  REQUIRE(a.send(0, pattern(10, 1)));
  REQUIRE(a.send(0, pattern(10, 1)));
  ni.run();
  REQUIRE(read(descriptor, &value, sizeof value) == sizeof value);
  CHECK(value == 1);
  CHECK(a.header->sender_waiting.value == 0);
  CHECK(ni.counter(NiCounter::wakeups) == 1);
}

TEST_CASE("the receiver that sleeps is woken once per batch") {
  TestWire wire;
  TestNi ni({&wire});
  TestEndpoint& a = ni.add_endpoint();
  TestEndpoint& b = ni.add_endpoint();
  ni.hairpin(a, 0, b, 0);
  ni.wire(b, 1, 0x10001, 1, kPeer);
  ni.run();
  b.header->receiver_asleep.value = 1;
  const int descriptor = ni.wake_descriptor(b);
  for (int i = 0; i < 10; ++i) {
    if (GENERATE(false, true)) {
      wire.arriving.push_back(make_frame({.to = wire.capabilities.address, .from = kPeer, .tag = Tag{0x10001}}, {}));
    } else {
      REQUIRE(a.send(0, pattern(10, 1)));
    }
  }
  ni.run();
  uint64_t value = 0;
  REQUIRE(read(descriptor, &value, sizeof value) == sizeof value);
  CHECK(value == 1);
  CHECK(b.header->receiver_asleep.value == 0);
  CHECK(ni.counter(NiCounter::wakeups) == 1);
}

}  // namespace unet::engine::mux_test
