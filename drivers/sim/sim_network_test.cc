// sim_network_test.cc - the simulated wire: routes, arrival times, losses and their counters.
#include "drivers/sim/sim_network.h"

#include <algorithm>
#include <cstring>
#include <map>

#include <catch2/catch.hpp>

#include "unet/wire/frame.h"

using namespace unet;
using unet::drivers::SimNetwork;
using unet::drivers::SimPortOptions;

namespace {

bool send(Driver& from, const MacAddress& to, uint32_t length, uint8_t mark, Nanoseconds now) {
  TransmitFrame frame;
  if (from.allocate({&frame, 1}) != 1) return false;
  std::memset(frame.data, mark, std::min<uint32_t>(length, from.capabilities().mtu + 14));
  std::memcpy(frame.data, to.data(), 6);
  std::memcpy(frame.data + 6, from.capabilities().address.data(), 6);
  frame.length = length;
  return from.transmit({&frame, 1}, now) == 1;
}

// Receives one frame and returns its mark, or -1.
int receive(Driver& at, Nanoseconds now) {
  ReceivedFrame frame;
  if (at.receive({&frame, 1}, now) != 1) return -1;
  const int mark = static_cast<int>(frame.data[frame.length - 1]);
  at.release({&frame, 1});
  return mark;
}

uint64_t counter(const Driver& driver, const std::string& name) {
  for (const DriverCounter& c : driver.counters()) {
    if (c.name == name) return c.value;
  }
  FAIL("no counter " << name);
  return 0;
}

}  // namespace

TEST_CASE("frames go to their address, broadcast and unknown addresses to everybody else") {
  SimNetwork net(4);
  std::vector<std::unique_ptr<Driver>> ports;
  for (uint32_t i = 0; i < 4; ++i) ports.push_back(net.port(i));
  const auto receivers = [&](const MacAddress& to) {
    static Nanoseconds now = 0;
    REQUIRE(send(*ports[1], to, 60, 7, now));
    now += 10 * kMicrosecond;
    std::vector<uint32_t> got;
    for (uint32_t i = 0; i < 4; ++i) {
      if (receive(*ports[i], now) == 7) got.push_back(i);
    }
    return got;
  };
  CHECK(receivers(SimNetwork::address_of(3)) == std::vector<uint32_t>{3});
  CHECK(receivers(kBroadcast) == std::vector<uint32_t>{0, 2, 3});
  CHECK(receivers({0x01, 0, 0x5e, 0, 0, 1}) == std::vector<uint32_t>{0, 2, 3});
  CHECK(receivers({0x02, 9, 9, 9, 9, 9}) == std::vector<uint32_t>{0, 2, 3});
  CHECK(receivers(SimNetwork::address_of(1)).empty());
  CHECK(counter(*ports[1], "no_receiver") == 1);
}

TEST_CASE("a frame arrives after two delays and two serialisations, never before") {
  SimNetwork net(2, {.delay = 1000, .bits_per_second = 1'000'000'000});
  auto a = net.port(0), b = net.port(1);
  REQUIRE(send(*a, SimNetwork::address_of(1), 1000, 1, 5));  // 8 us per link
  CHECK(b->next_event() == 5 + 8000 + 1000);
  b->poll(b->next_event());
  CHECK(b->next_event() == 5 + 2 * (8000 + 1000));
  CHECK(receive(*b, 5 + 2 * 9000 - 1) == -1);
  CHECK(receive(*b, 5 + 2 * 9000) == 1);
  CHECK(b->next_event() == ~Nanoseconds{0});
}

TEST_CASE("next_event leads a simulation through every delivery") {
  SimNetwork net(3, {.delay = 700, .bits_per_second = 10'000'000'000});
  std::vector<std::unique_ptr<Driver>> ports;
  for (uint32_t i = 0; i < 3; ++i) ports.push_back(net.port(i));
  for (uint8_t i = 0; i < 50; ++i) REQUIRE(send(*ports[i % 2], SimNetwork::address_of(2), 60u + i, i, i * 13u));
  uint32_t received = 0, steps = 0;
  std::vector<int> last(2, -1);
  for (Nanoseconds now = net.next_event(); now != ~Nanoseconds{0}; now = net.next_event()) {
    REQUIRE(++steps < 1000);
    net.advance(now);
    for (auto& port : ports) {
      for (int mark = receive(*port, now); mark >= 0; mark = receive(*port, now)) {
        CHECK(port == ports[2]);
        CHECK(mark > last[static_cast<size_t>(mark % 2)]);  // frames of each sender arrive in order
        last[static_cast<size_t>(mark % 2)] = mark;
        ++received;
      }
    }
  }
  CHECK(received == 50);
}

TEST_CASE("a full downlink queue, a full receive ring, bad sizes and cut links are counted by name") {
  SECTION("queue") {
    SimNetwork net(2, {.bits_per_second = 1'000'000, .queue_bytes = 400});
    auto a = net.port(0), b = net.port(1);
    // Both links are equally fast: two senders can overrun the downlink, one cannot.
    SimNetwork three(3, {.bits_per_second = 1'000'000, .queue_bytes = 400});
    auto x = three.port(0), y = three.port(1), z = three.port(2);
    for (int i = 0; i < 20; ++i) {
      REQUIRE(send(*a, SimNetwork::address_of(1), 100, 1, 0));
      REQUIRE(send(*x, SimNetwork::address_of(2), 100, 1, 0));
      REQUIRE(send(*y, SimNetwork::address_of(2), 100, 2, 0));
    }
    int one = 0, both = 0;
    for (Nanoseconds now = 0; now < kSecond; now += 100 * kMicrosecond) {
      one += receive(*b, now) >= 0;
      both += receive(*z, now) >= 0;
    }
    CHECK(one == 20);
    CHECK(counter(*b, "queue_full") == 0);
    CHECK(counter(*z, "queue_full") > 0);
    CHECK(both + static_cast<int>(counter(*z, "queue_full")) == 40);
  }
  SECTION("receive ring") {
    SimNetwork net(2, {.receive_ring = 8});
    auto a = net.port(0), b = net.port(1);
    for (uint8_t i = 0; i < 20; ++i) REQUIRE(send(*a, SimNetwork::address_of(1), 60, i, 0));
    b->poll(kSecond);
    for (int i = 0; i < 8; ++i) CHECK(receive(*b, kSecond) == i);
    CHECK(receive(*b, kSecond) == -1);
    CHECK(counter(*b, "rx_missed") == 12);
  }
  SECTION("sizes") {
    const SimPortOptions options[] = {{.mtu = 1500}, {.mtu = 1000}};
    SimNetwork net(options);
    auto a = net.port(0), b = net.port(1);
    REQUIRE(send(*a, SimNetwork::address_of(1), 1515, 1, 0));
    CHECK(counter(*a, "tx_oversize") == 1);
    REQUIRE(send(*a, SimNetwork::address_of(1), 13, 1, 0));
    CHECK(counter(*a, "tx_runt") == 1);
    REQUIRE(send(*a, SimNetwork::address_of(1), 1015, 1, 0));
    REQUIRE(send(*a, SimNetwork::address_of(1), 1014, 2, 0));
    CHECK(receive(*b, kSecond) == 2);
    CHECK(counter(*b, "rx_oversize") == 1);
  }
  SECTION("links") {
    SimNetwork net(2);
    auto a = net.port(0), b = net.port(1);
    net.set_link(1, false);
    REQUIRE(send(*a, SimNetwork::address_of(1), 60, 1, 0));
    CHECK(receive(*b, kMillisecond) == -1);
    CHECK(counter(*b, "unplugged") == 1);
    net.set_link(1, true);
    REQUIRE(send(*a, SimNetwork::address_of(1), 60, 2, kMillisecond));
    CHECK(receive(*b, 2 * kMillisecond) == 2);
  }
}

TEST_CASE("frames come back: nothing is lost from a port's pool whatever happens to them") {
  std::vector<SimPortOptions> options(3, {.bits_per_second = 1e9, .queue_bytes = 120, .receive_ring = 2, .frames = 16});
  options[0].bits_per_second = 0;  // the sender is faster than the downlinks: their queues fill
  SimNetwork net(options);
  auto a = net.port(0), b = net.port(1), c = net.port(2);
  for (Nanoseconds now = 0; now < 1000 * kMicrosecond; now += 10 * kMicrosecond) {
    for (uint8_t i = 0; i < 16; ++i) REQUIRE(send(*a, i % 2 == 0 ? kBroadcast : SimNetwork::address_of(1), i % 5 == 0 ? 2000 : 60, i, now));
    net.set_link(2, now % 3 != 0);
    const Nanoseconds later = now + 5 * kMicrosecond;
    while (receive(*b, later) >= 0) {
    }
    while (receive(*c, later) >= 0) {
    }
  }
  for (const auto& port : {&b, &c}) {
    CHECK(counter(**port, "queue_full") > 100);
    CHECK(counter(**port, "rx_missed") > 0);
  }
  std::vector<TransmitFrame> frames(17);
  CHECK(a->allocate(frames) == 16);
  a->discard({frames.data(), 16});
  CHECK(a->allocate(frames) == 16);
}

TEST_CASE("an external payload is read late, once, and completes") {
  SimNetwork net(2, {.delay = 1000, .external_payload = true});
  auto a = net.port(0), b = net.port(1);
  std::vector<std::byte> memory(100, std::byte{1});
  REQUIRE(a->register_memory(memory));
  TransmitCompletion completion{.pending = 2};
  for (int i = 0; i < 2; ++i) {
    TransmitFrame frame;
    REQUIRE(a->allocate({&frame, 1}) == 1);
    std::memcpy(frame.data, SimNetwork::address_of(1).data(), 6);
    frame.length = 14;
    frame.external = memory.data();
    frame.external_length = 100;
    frame.completion = &completion;
    REQUIRE(a->transmit({&frame, 1}, static_cast<Nanoseconds>(i) * 5000) == 1);
  }
  CHECK(completion.pending == 1);  // the first frame left the port at 1000
  memory[99] = std::byte{9};
  a->forget_memory(memory);
  CHECK(completion.pending == 0);
  memory[99] = std::byte{5};
  CHECK(receive(*b, kSecond) == 1);
  CHECK(receive(*b, kSecond) == 9);
}

TEST_CASE("equal calls give equal results") {
  const auto run = [] {
    SimNetwork net(4, {.delay = 300, .bits_per_second = 1'000'000'000, .queue_bytes = 4000});
    std::vector<std::unique_ptr<Driver>> ports;
    for (uint32_t i = 0; i < 4; ++i) ports.push_back(net.port(i));
    std::vector<std::pair<Nanoseconds, int>> log;
    uint32_t random = 1;
    for (Nanoseconds now = 0; now < 200 * kMicrosecond; now += 250) {
      random = random * 1664525 + 1013904223;
      send(*ports[random >> 30], SimNetwork::address_of(random >> 28 & 3), 60 + (random >> 8) % 1000,
           static_cast<uint8_t>(random >> 16), now);
      for (auto& port : ports) {
        for (int mark = receive(*port, now); mark >= 0; mark = receive(*port, now)) log.emplace_back(now, mark);
      }
    }
    for (auto& port : ports) {
      for (const DriverCounter& c : port->counters()) log.emplace_back(c.value, -2);
    }
    return log;
  };
  const auto first = run();
  CHECK(first.size() > 100);
  CHECK(run() == first);
}
