// faulty_test.cc - each fault works, at the given rate, and repeats with its seed.
#include "drivers/faulty/faulty.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>

#include <catch2/catch.hpp>

#include "drivers/sim/sim_network.h"  // tidy: allow include because a test needs a wire to make worse

using namespace unet;
using unet::drivers::Faulty;
using unet::drivers::FaultyDirection;
using unet::drivers::FaultyOptions;
using unet::drivers::SimNetwork;

namespace {

constexpr uint32_t kLength = 100;

std::byte body(uint32_t number, uint32_t position) { return static_cast<std::byte>(number * 7 + position * 13); }

struct Arrived {
  uint32_t number;
  uint32_t wrong_bits;
  Nanoseconds at;
  bool operator==(const Arrived&) const = default;
};

// Sends `count` numbered frames, one per `gap`, from port 0 to port 1, with the faults of `options`.
struct Run {
  std::vector<Arrived> arrived;
  std::map<std::string, uint64_t> counters;
};

Run run(FaultyOptions options, uint32_t count, Nanoseconds gap = 10 * kMicrosecond) {
  SimNetwork net(2, {.delay = 100, .receive_ring = 4096, .frames = 4096});
  const bool at_sender = options.direction == FaultyDirection::transmit;
  std::unique_ptr<Driver> a = net.port(0), b = net.port(1);
  std::unique_ptr<Driver>& afflicted = at_sender ? a : b;
  afflicted = std::make_unique<Faulty>(std::move(afflicted), options);
  Run result;
  const auto collect = [&](Nanoseconds now) {
    a->poll(now);
    b->poll(now);
    ReceivedFrame frames[5];
    for (uint32_t got; (got = b->receive(frames, now)) != 0; b->release({frames, got})) {
      for (const ReceivedFrame& frame : std::span(frames, got)) {
        REQUIRE(frame.length == kLength);
        Arrived one{.number = 0, .wrong_bits = 0, .at = now};
        std::memcpy(&one.number, frame.data + 14, sizeof(one.number));
        std::byte expected[kLength];
        std::memcpy(expected, SimNetwork::address_of(1).data(), 6);
        std::memcpy(expected + 6, SimNetwork::address_of(0).data(), 6);
        // A damaged frame number does not tell what was sent, so compare bits after it.
        for (uint32_t i = 18; i < kLength; ++i) {
          one.wrong_bits += static_cast<uint32_t>(std::popcount(static_cast<uint8_t>(frame.data[i] ^ body(one.number, i))));
        }
        result.arrived.push_back(one);
      }
    }
  };
  Nanoseconds now = 0;
  for (uint32_t i = 0; i < count; ++i, now += gap) {
    TransmitFrame frame;
    REQUIRE(a->allocate({&frame, 1}) == 1);
    std::memcpy(frame.data, SimNetwork::address_of(1).data(), 6);
    std::memcpy(frame.data + 6, SimNetwork::address_of(0).data(), 6);
    std::memset(frame.data + 12, 0, 2);
    std::memcpy(frame.data + 14, &i, sizeof(i));
    for (uint32_t k = 18; k < kLength; ++k) frame.data[k] = body(i, k);
    frame.length = kLength;
    REQUIRE(a->transmit({&frame, 1}, now) == 1);
    collect(now);
  }
  // From here on only events advance the clock.
  for (uint32_t steps = 0; steps < 10 * count + 100; ++steps) {
    const Nanoseconds next = std::min(a->next_event(), b->next_event());
    if (next == ~Nanoseconds{0}) break;
    collect(now = std::max(now, next));
  }
  CHECK(std::min(a->next_event(), b->next_event()) == ~Nanoseconds{0});
  for (const DriverCounter& c : afflicted->counters()) {
    const size_t prefix = c.name.find("x_");  // faulty_rx_lost, faulty_tx_lost: lost
    if (c.name.starts_with("faulty_")) result.counters[c.name.substr(prefix + 2)] = c.value;
  }
  return result;
}

bool in_order(const std::vector<Arrived>& arrived) {
  return std::is_sorted(arrived.begin(), arrived.end(), [](const Arrived& x, const Arrived& y) { return x.number < y.number; });
}

}  // namespace

TEST_CASE("no fault: everything passes, in order, untouched") {
  const auto direction = GENERATE(FaultyDirection::transmit, FaultyDirection::receive);
  const Run r = run({.direction = direction}, 500);
  CHECK(r.arrived.size() == 500);
  CHECK(in_order(r.arrived));
  CHECK(r.counters.at("passed") == 500);
}

TEST_CASE("loss and duplication happen as often as asked, and are counted") {
  const auto direction = GENERATE(FaultyDirection::transmit, FaultyDirection::receive);
  const Run lossy = run({.loss = 0.1, .seed = 3, .direction = direction}, 5000);
  CHECK(lossy.arrived.size() + lossy.counters.at("lost") == 5000);
  CHECK(lossy.counters.at("lost") > 400);
  CHECK(lossy.counters.at("lost") < 600);
  CHECK(in_order(lossy.arrived));
  const Run twice = run({.duplicate = 0.1, .seed = 3, .direction = direction}, 5000);
  CHECK(twice.arrived.size() == 5000 + twice.counters.at("duplicated"));
  CHECK(twice.counters.at("duplicated") > 400);
  CHECK(twice.counters.at("duplicated") < 600);
  CHECK(in_order(twice.arrived));
}

TEST_CASE("corruption changes one to four bits, or as many as allowed, of the frames it counts") {
  const auto direction = GENERATE(FaultyDirection::transmit, FaultyDirection::receive);
  const Run r = run({.corrupt = 0.2, .seed = 5, .direction = direction}, 2000);
  CHECK(r.arrived.size() == 2000);
  uint64_t damaged = 0;
  for (const Arrived& a : r.arrived) damaged += a.wrong_bits != 0;
  CHECK(damaged > 250);
  CHECK(damaged <= r.counters.at("corrupted"));
  CHECK(r.counters.at("corrupted") < 500);
  const Run gentle = run({.corrupt = 0.2, .corrupt_bits = 1, .seed = 5, .direction = direction}, 2000);
  CHECK(gentle.counters.at("corrupted") > 250);
  for (const Arrived& a : gentle.arrived) CHECK((a.wrong_bits <= 1 || a.wrong_bits > 4));  // more wrong bits: the frame's number is damaged
}

TEST_CASE("reordering lets later frames pass and loses nothing") {
  const auto direction = GENERATE(FaultyDirection::transmit, FaultyDirection::receive);
  const Run r = run({.reorder = 0.1, .seed = 5, .direction = direction}, 2000);
  CHECK(r.arrived.size() == 2000);
  CHECK_FALSE(in_order(r.arrived));
  std::vector<bool> seen(2000);
  for (const Arrived& a : r.arrived) seen.at(a.number) = true;
  CHECK(std::count(seen.begin(), seen.end(), true) == 2000);
  CHECK(r.counters.at("reordered") > 150);
  uint64_t overtaken = 0;
  for (size_t i = 1; i < r.arrived.size(); ++i) overtaken += r.arrived[i].number < r.arrived[i - 1].number;
  CHECK(overtaken > 100);
}

TEST_CASE("a last frame that is to be overtaken goes after reorder_hold") {
  const Run r = run({.reorder = 1, .reorder_hold = 50 * kMicrosecond}, 1);
  REQUIRE(r.arrived.size() == 1);
  CHECK(r.arrived[0].at >= 50 * kMicrosecond);
  CHECK(r.arrived[0].at <= 51 * kMicrosecond);
}

TEST_CASE("delay lies between its bounds; a constant one keeps the order") {
  const auto direction = GENERATE(FaultyDirection::transmit, FaultyDirection::receive);
  const Run constant = run({.delay_min = 35 * kMicrosecond, .delay_max = 35 * kMicrosecond, .direction = direction}, 200);
  CHECK(constant.arrived.size() == 200);
  CHECK(in_order(constant.arrived));
  const Run r = run({.delay_min = 20 * kMicrosecond, .delay_max = 90 * kMicrosecond, .direction = direction}, 1000);
  CHECK(r.arrived.size() == 1000);
  CHECK_FALSE(in_order(r.arrived));
  for (const Arrived& a : r.arrived) {
    const Nanoseconds taken = a.at - a.number * 10 * kMicrosecond;
    CHECK(taken >= 20 * kMicrosecond);
    CHECK(taken <= 111 * kMicrosecond);  // the port is polled every 10 us
  }
}

TEST_CASE("a rate spreads frames out, keeps their order, and overflows when they come faster for long") {
  const Run r = run({.bits_per_second = 8'000'000, .frames = 64}, 300);  // 100 us each; a frame comes every 10 us
  CHECK(in_order(r.arrived));
  CHECK(r.counters.at("overflow") > 0);
  CHECK(r.arrived.size() + r.counters.at("overflow") == 300);
  for (size_t i = 1; i < r.arrived.size(); ++i) CHECK(r.arrived[i].at - r.arrived[i - 1].at >= 100 * kMicrosecond - 10 * kMicrosecond);
  CHECK(r.arrived.back().at >= (r.arrived.size() - 1) * 100 * kMicrosecond);
}

TEST_CASE("the same seed gives the same run, another seed another") {
  const FaultyOptions all{.loss = 0.05, .duplicate = 0.05, .reorder = 0.05, .corrupt = 0.05, .delay_min = 0, .delay_max = 40'000,
                          .bits_per_second = 200'000'000, .seed = 11, .direction = FaultyDirection::receive};
  FaultyOptions other = all;
  other.seed = 12;
  const Run first = run(all, 1000), second = run(all, 1000), third = run(other, 1000);
  CHECK(first.arrived == second.arrived);
  CHECK(first.counters == second.counters);
  CHECK_FALSE(first.arrived == third.arrived);
}

TEST_CASE("external payloads of detained frames are copied and complete at once") {
  SimNetwork net(2, {.delay = 100, .external_payload = true});
  Faulty a(net.port(0), {.delay_min = 1000, .delay_max = 1000});
  auto b = net.port(1);
  std::vector<std::byte> payload(80, std::byte{4});
  TransmitCompletion completion{.pending = 1};
  TransmitFrame frame;
  REQUIRE(a.allocate({&frame, 1}) == 1);
  std::memcpy(frame.data, SimNetwork::address_of(1).data(), 6);
  frame.length = 14;
  frame.external = payload.data();
  frame.external_length = 80;
  frame.completion = &completion;
  REQUIRE(a.transmit({&frame, 1}, 0) == 1);
  CHECK(completion.pending == 0);
  payload.assign(80, std::byte{9});
  a.poll(1000);
  ReceivedFrame received;
  REQUIRE(b->receive({&received, 1}, 5000) == 1);
  CHECK(received.length == 94);
  CHECK(received.data[93] == std::byte{4});
}
