// segmentation_test.cc - messages of all sizes between two NIs over wires that lose, repeat, reorder and corrupt frames.
//
// One seed decides everything: the wire, its faults, the messages. Time is virtual. Whatever the wire does, a message arrives whole and
// intact or not at all. Every missing message is counted, and nothing is held afterwards.
#include <catch2/catch.hpp>

#include <random>
#include <set>

#include "drivers/faulty/faulty.h"
#include "drivers/sim/sim_network.h"
#include "ni/engine/test_ni.h"
#include "unet/base/test_seeds.h"

using namespace unet;
using namespace unet::engine;

namespace {

constexpr EndpointOptions kEndpoint{.send_depth = 32, .receive_depth = 256, .buffers = 1024, .buffer_size = 1024, .send_bytes = 512 * 1024};

struct Setting {
  drivers::SimPortOptions wire;
  drivers::FaultyOptions faults;
  uint32_t messages = 30;
  uint32_t longest = kMessageMax;
};

struct Outcome {
  uint32_t sent = 0;
  std::vector<uint32_t> arrived;  // message numbers, in order of arrival
  uint64_t drops = 0;             // whole messages, from the receiving endpoint's counters
  uint64_t duplicates = 0;
  uint64_t bad_crc = 0;
  std::string account;            // all counters, for the search of a fault
};

// A message contains its own number and length, so that it can be checked by itself.
std::vector<std::byte> numbered(uint32_t number, uint32_t size) {
  std::vector<std::byte> message = pattern(size, number);
  if (size != 0) std::memcpy(message.data(), &number, std::min<size_t>(size, 4));
  return message;
}

class Simulation : public Simulator, private SimNode {
 public:
  Simulation(const Setting& setting, uint32_t seed)
      : Simulator(seed), setting_(setting), network_(*this, 2, setting.wire), left_(port(0, seed), {}), right_(port(1, seed + 1), {}),
        a_(left_.add_endpoint(kEndpoint)), b_(right_.add_endpoint(kEndpoint)) {
    add(*this);
    left_.wire(a_, 1, 0x10001, 0x20002, drivers::SimNetwork::address_of(1));
    right_.wire(b_, 2, 0x20002, 0x10001, drivers::SimNetwork::address_of(0));
  }

  Outcome run() {
    Simulator::run();
    Outcome outcome = outcome_;
    outcome.drops = endpoint_drops(b_) - b_.counter(EndpointCounter::duplicate_fragment);
    outcome.duplicates = b_.counter(EndpointCounter::duplicate_fragment);
    outcome.bad_crc = right_.counter(NiCounter::bad_crc);
    CHECK(a_.counter(EndpointCounter::sent_messages) == outcome.sent);
    CHECK(b_.counter(EndpointCounter::received_messages) == outcome.arrived.size());
    CHECK(b_.counter(EndpointCounter::no_free_buffer) + b_.counter(EndpointCounter::too_fragmented) == 0);
    CHECK(right_.engine->next_event() == ~Nanoseconds{0});  // no reassembly is left
    check_all_buffers_are_there();
    outcome.account = account();
    return outcome;
  }

 private:
  std::string account() {
    std::string text;
    const auto add = [&](std::string_view name, uint64_t value) {
      if (value != 0) text += " " + std::string(name) + "=" + std::to_string(value);
    };
    for (size_t i = 0; i < kEndpointCounters; ++i) add(kEndpointCounterNames[i], b_.counter(static_cast<EndpointCounter>(i)));
    for (TestNi* ni : {&left_, &right_}) {
      for (const DriverCounter& counter : ni->engine->port(0).counters()) add(counter.name, counter.value);
    }
    return text;
  }
  std::unique_ptr<Driver> port(uint32_t index, uint32_t seed) {
    drivers::FaultyOptions faults = setting_.faults;
    faults.seed = seed;
    return std::make_unique<drivers::Faulty>(network_.port(index), faults);
  }
  // Sends if it can, polls both engines, and receives.
  Nanoseconds process() override {
    const bool more = outcome_.sent < setting_.messages;
    if (more && send(outcome_.sent)) {
      ++outcome_.sent;
      time_of_last_ = now();
    }
    left_.now = right_.now = now();
    left_.poll();
    while (right_.poll() != 0) {  // keeps up with the wire: a slow receiver's losses are tested with the wire
    }
    while (const auto message = b_.receive()) check(*message);
    if (!more && time_of_last_ + kSecond <= now()) return kNever;
    // Without events on the wire time goes to the end of all timers.
    if (!more && network_.next_event() == kNever) return now() + 10 * kMillisecond;
    return now() + 1 + below(20 * kMicrosecond);
  }
  bool send(uint32_t number) {
    // At most as many in flight as the receiver has buffers for: drops for want of buffers have their own test.
    if (a_.writer.position() != a_.header->send_consumed.value.load() || random() % 4 != 0) return false;
    const auto size = static_cast<uint32_t>(random() % 3 == 0 ? below(200) : below(setting_.longest + 1));
    sizes_.push_back(size);
    const bool taken = a_.send(1, numbered(number, size));
    a_.ring(left_.page);
    return taken;
  }
  void check(const Arrived& message) {
    uint32_t number = ~0u;
    if (message.bytes.size() >= 4) {
      std::memcpy(&number, message.bytes.data(), 4);
      REQUIRE(number < outcome_.sent);
      REQUIRE(message.bytes.size() == sizes_[number]);
      REQUIRE((message.bytes == numbered(number, sizes_[number])));
    }
    REQUIRE(message.channel == 2);
    outcome_.arrived.push_back(number);
  }
  // Afterwards, messages that together need every receive buffer arrive.
  void check_all_buffers_are_there() {
    constexpr uint32_t kAll = kEndpoint.buffers * kEndpoint.buffer_size / kMessageMax;
    TestEndpoint& local = right_.add_endpoint(kEndpoint);
    right_.hairpin(local, 0, b_, 7);
    for (uint32_t i = 0; i < kAll; ++i) {
      REQUIRE(local.send(0, pattern(kMessageMax, i)));
      right_.run();
      REQUIRE(b_.receive(true).has_value());
    }
  }

  Setting setting_;
  drivers::SimNetwork network_;
  TestNi left_, right_;
  TestEndpoint& a_;
  TestEndpoint& b_;
  Outcome outcome_;
  Nanoseconds time_of_last_ = 0;
  std::vector<uint32_t> sizes_;
};

Outcome run(const Setting& setting, uint32_t seed) {
  CAPTURE(seed);
  const Outcome outcome = Simulation(setting, seed).run();
  UNSCOPED_INFO("seed " << seed << outcome.account);
  return outcome;
}

drivers::SimPortOptions wire_of(uint32_t seed) {
  constexpr uint32_t kMtus[] = {200, 576, 1500, 9000};
  return {.delay = 1 + seed % 7 * 300, .mtu = kMtus[seed % 4], .receive_ring = 1024, .frames = 2048,
          .external_payload = seed % 8 >= 4};
}

const uint32_t kSeeds = test::seeds(400);  // of each of the cases below

}  // namespace

TEST_CASE("a wire without faults delivers every message, in order") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Outcome outcome = run({.wire = wire_of(seed)}, seed);
    REQUIRE(outcome.arrived.size() == outcome.sent);
    for (uint32_t i = 0; i < outcome.sent; ++i) REQUIRE((outcome.arrived[i] == i || outcome.arrived[i] == ~0u));
    REQUIRE(outcome.drops + outcome.duplicates + outcome.bad_crc == 0);
  }
}

TEST_CASE("a wire that reorders loses no message") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Outcome outcome = run({.wire = wire_of(seed), .faults = {.reorder = 0.2}}, seed);
    REQUIRE(outcome.arrived.size() == outcome.sent);
    REQUIRE(outcome.drops + outcome.duplicates + outcome.bad_crc == 0);
  }
}

TEST_CASE("a wire that delays each frame differently loses no message") {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Outcome outcome = run({.wire = wire_of(seed), .faults = {.delay_max = 50 * kMicrosecond, .frames = 4096}}, seed);
    REQUIRE(outcome.arrived.size() == outcome.sent);
    REQUIRE(outcome.drops + outcome.duplicates + outcome.bad_crc == 0);
  }
}

TEST_CASE("a wire that loses frames costs whole messages, each counted at most once") {
  uint64_t arrived = 0, drops = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Outcome outcome = run({.wire = wire_of(seed), .faults = {.loss = 0.02}}, seed);
    REQUIRE(outcome.arrived.size() + outcome.drops <= outcome.sent);
    REQUIRE(std::set<uint32_t>(outcome.arrived.begin(), outcome.arrived.end()).size() <= outcome.arrived.size());
    REQUIRE(outcome.duplicates == 0);
    arrived += outcome.arrived.size();
    drops += outcome.drops;
  }
  CHECK(arrived > kSeeds * 5);
  CHECK(drops > kSeeds);
}

TEST_CASE("a wire that corrupts frames never delivers a wrong byte") {
  uint64_t bad_crc = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Outcome outcome = run({.wire = wire_of(seed), .faults = {.corrupt = 0.05}}, seed);
    REQUIRE(outcome.arrived.size() + outcome.drops <= outcome.sent);
    bad_crc += outcome.bad_crc;
  }
  CHECK(bad_crc > kSeeds);
}

TEST_CASE("a wire that repeats frames does not repeat messages of several frames") {
  uint64_t duplicates = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Outcome outcome = run({.wire = wire_of(seed), .faults = {.duplicate = 0.1}}, seed);
    REQUIRE(outcome.drops == 0);
    REQUIRE(outcome.arrived.size() >= outcome.sent);  // single frames may be repeated: channels are raw
    duplicates += outcome.duplicates;
  }
  CHECK(duplicates > kSeeds);
}

TEST_CASE("a wire that does all of it at once") {
  uint64_t arrived = 0;
  for (uint32_t seed = 0; seed < 4 * kSeeds; ++seed) {
    std::mt19937 random(seed);
    const auto up_to = [&](double limit) { return limit * static_cast<double>(random() % 1000) / 1000; };
    const Setting setting{.wire = wire_of(seed),
                          .faults = {.loss = up_to(0.1), .duplicate = up_to(0.2), .reorder = up_to(0.3), .corrupt = up_to(0.05),
                                     .delay_min = 0, .delay_max = random() % (200 * kMicrosecond)},
                          .longest = 1 + static_cast<uint32_t>(random() % kMessageMax)};
    const Outcome outcome = run(setting, seed);
    arrived += outcome.arrived.size();
  }
  CHECK(arrived > kSeeds);
}

TEST_CASE("the same seed gives the same outcome") {
  const Setting setting{.wire = wire_of(2), .faults = {.loss = 0.05, .duplicate = 0.1, .reorder = 0.2, .corrupt = 0.02}};
  const Outcome first = run(setting, 99), second = run(setting, 99);
  CHECK(first.arrived == second.arrived);
  CHECK(first.drops == second.drops);
  CHECK(first.duplicates == second.duplicates);
}
