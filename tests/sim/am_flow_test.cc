// am_flow_test.cc - Active Message flows in a simulated network: thousands of seeds with loss, duplication, reordering, partitions and
// sleep; and congestion control with many senders to one receiver.
//
// Whatever the network does, each request and each reply is handled once and in order. Afterwards nothing is held, and no flow waits for
// ever.
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "am/sim_fabric.h"
#include "unet/base/test_seeds.h"

using namespace unet;
using namespace unet::am;
using namespace unet::am::sim;

namespace {

FlowOptions options_of(std::mt19937_64& random) {
  FlowOptions options;
  options.window = static_cast<uint32_t>(1 + random() % kFlowWindow);
  if (random() % 4 == 0) options.recovery = Recovery::go_back_n;
  options.ack_delay = random() % (100 * kMicrosecond);
  return options;
}

void check_end(Network& network, size_t flows, const char* what, uint64_t seed) {
  INFO(what << ", seed " << seed);
  REQUIRE(network.fault() == "");
  for (size_t i = 0; i < flows; ++i) {
    for (const size_t which : {0u, 1u}) {
      Side& one = network.side(i, which);
      Side& other = network.side(i, 1 - which);
      INFO("flow " << i << ", side " << which << ": " << one.requests_begun << " of " << one.wanted << " begun, "
                   << other.requests_handled << " handled, " << one.flow().unacknowledged() << " not acknowledged");
      REQUIRE(one.flow().state() == Flow::State::open);
      REQUIRE(one.done());
      REQUIRE(other.requests_handled == one.wanted);
      REQUIRE(one.replies_handled == other.replies_begun);
      REQUIRE(other.replies_begun + other.unanswered == one.wanted);
      REQUIRE(one.flow().in_flight() == 0);
      REQUIRE(one.flow().counters().bad_ack == 0);
      REQUIRE(one.flow().counters().beyond_window == 0);
    }
  }
}

// The life of a small network; the seed decides everything.
void live(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto percent = [&](uint64_t most) { return static_cast<double>(random() % (most + 1)) / 100; };
  SimLinkOptions wire{.queue = 256 * 1500};
  wire.delay = 1 + random() % (200 * kMicrosecond);
  if (random() % 2 == 0) wire.jitter = 1 + random() % (2 * wire.delay);
  if (random() % 2 == 0) wire.loss = percent(30);
  if (random() % 2 == 0) wire.duplicate = percent(30);
  if (random() % 3 == 0) wire.bits_per_second = 1e8 * static_cast<double>(1 + random() % 1000);
  const uint32_t nodes = 2 + static_cast<uint32_t>(random() % 4);
  Network network(nodes, wire, seed);
  size_t flows = 0;
  for (uint32_t a = 0; a < nodes; ++a) {
    for (uint32_t b = a + 1; b < nodes; ++b) {
      network.connect(a, b, options_of(random), options_of(random));
      for (const size_t which : {0u, 1u}) {
        Side& side = network.side(flows, which);
        side.wanted = random() % 300;
        side.bytes = 48 + static_cast<uint32_t>(random() % 4000);
        side.replies = percent(100);
      }
      ++flows;
    }
  }
  // Partitions and sleeps, each shorter than the time after which a peer counts as dead.
  for (int i = 0; i < 3; ++i) {
    network.run_for(random() % (5 * kMillisecond));
    const auto node = static_cast<uint32_t>(random() % nodes);
    const size_t flow = random() % flows, which = random() % 2;
    if (random() % 2 == 0) network.cut(node, true);
    if (random() % 2 == 0) network.side(flow, which).asleep = true;
    network.run_for(random() % (20 * kMillisecond));
    network.cut(node, false);
    network.wake(flow, which);
  }
  network.run();
  check_end(network, flows, "a network", seed);
}

}  // namespace

TEST_CASE("thousands of networks: exactly once, in order, and nothing is left") {
  for (uint64_t seed = 1; seed <= test::seeds(3000); ++seed) live(seed);
}

TEST_CASE("an outage of milliseconds costs little more than itself, however much was on its way") {
  const auto waiting = GENERATE(range(1u, 65u, test::kSanitized ? 9u : 1u));
  const auto bytes = GENERATE(64u, 1500u, 4096u);
  Network network(2, {.delay = 10 * kMicrosecond, .bits_per_second = 10e9}, waiting);
  network.connect(0, 1, {}, {});
  Side& sender = network.side(0, 0);
  sender.bytes = bytes;
  sender.wanted = 5000;
  network.run_for(2 * kMillisecond);
  network.cut(0, true);
  sender.wanted = sender.requests_begun + waiting;
  network.run_for(3 * kMillisecond);
  network.cut(0, false);
  const Nanoseconds healed = network.now();
  while (!sender.done() && network.now() < healed + kSecond) network.run_for(100 * kMicrosecond);
  CAPTURE(waiting, bytes, sender.flow().unacknowledged());
  REQUIRE(sender.done());
  CHECK(network.now() - healed < 30 * kMillisecond);
  CHECK(network.side(0, 1).requests_handled == sender.wanted);
}

TEST_CASE("128 nodes that all send to the next") {
  const SimLinkOptions wire{.delay = 10 * kMicrosecond, .jitter = 5 * kMicrosecond, .loss = 0.05, .duplicate = 0.05};
  Network network(128, wire, 7);
  for (uint32_t i = 0; i < 128; ++i) {
    network.connect(i, (i + 1) % 128, {}, {});
    network.side(i, 0).wanted = network.side(i, 1).wanted = 100;
  }
  network.run();
  check_end(network, 128, "a ring", 7);
}

TEST_CASE("32 senders to one: the link is full, its queue is short, and each has its share") {
  const uint32_t bytes = GENERATE(1500u, 4096u);
  const Incast result = incast(32, bytes, 1);
  CAPTURE(bytes, result.goodput, result.p99, result.unloaded, result.least_share, result.dropped);
  CHECK(result.goodput > 0.97);
  CHECK(result.p99 < 5 * result.unloaded);
  CHECK(result.least_share > 0.8);
  CHECK(result.dropped == 0);
}

TEST_CASE("32 senders to one that is slower than the wire: what it has to handle waits at them") {
  struct Scene {
    Worker receiver;
    Nanoseconds time, p99;
    double least_share;
  };
  const Nanoseconds us = kMicrosecond;
  const Scene scene = GENERATE_COPY(Scene{{.handling = us}, 100 * kMillisecond, 50 * us, 0.5},
                                    // A process that loses its core now and then.
                                    Scene{{.handling = us, .stops = 2e-4, .stops_for = 30 * us}, 50 * kMillisecond, 100 * us, 0.45},
                                    Scene{{.handling = us, .stops = 1e-4, .stops_for = kMillisecond}, 100 * kMillisecond, 300 * us, 0.6},
                                    // A process that needs longer for a packet than the limit for absence.
                                    Scene{{.handling = 20 * us}, 200 * kMillisecond, 1200 * us, 0.3},
                                    Scene{{.handling = 50 * us}, 500 * kMillisecond, 4 * kMillisecond, 0.7},
                                    // A process that sleeps whenever it is idle.
                                    Scene{{.handling = us, .wakes_in = 50 * us}, 100 * kMillisecond, 100 * us, 0.45});
  const Incast result = incast(32, 1500, 1, 0, scene.receiver, scene.time);
  const double possible = 1500 * 8e9 / static_cast<double>(scene.receiver.handling) / 100e9;
  CAPTURE(scene.receiver.handling, scene.receiver.stops_for, scene.receiver.wakes_in, possible);
  CAPTURE(result.goodput, result.p99, result.least_share, result.dropped);
  CHECK(result.goodput > 0.85 * possible);
  CHECK(result.p99 < scene.p99);
  CHECK(result.least_share > scene.least_share);
  CHECK(result.dropped == 0);
}

TEST_CASE("congestion control is what keeps that queue short") {
  // A window that never shrinks: shows what the previous case would give without congestion control.
  const SimLinkOptions wire{.delay = 4 * kMicrosecond, .bits_per_second = 100e9, .queue = 1024 * 1500};
  FlowOptions options;
  options.congestion = {.first_window = 1 << 20, .base_delay = kSecond};
  Network network(33, wire, 1);
  for (uint32_t i = 0; i < 32; ++i) {
    network.connect(i + 1, 0, options, options);
    network.side(i, 0).wanted = ~uint64_t{0};
    network.side(i, 0).bytes = 1500;
    network.side(i, 1).replies = 0;
  }
  network.run_for(5 * kMillisecond);
  CHECK(network.lost_in_queues() > 1000);
}

namespace {

// Goodput over a wire of 1 Gbit/s with a round trip of 100 us, which twelve packets of 1000 bytes fill.
double goodput(double loss, uint32_t window, Recovery recovery) {
  const SimLinkOptions wire{.delay = 50 * kMicrosecond, .loss = loss, .bits_per_second = 1e9};
  FlowOptions options;
  options.recovery = recovery;
  options.window = window;
  Network network(2, wire, 1);
  network.connect(0, 1, options, options);
  network.side(0, 0).wanted = ~uint64_t{0};
  network.side(0, 0).bytes = 1000;
  network.side(0, 1).replies = 0;
  network.run_for(500 * kMillisecond);
  return static_cast<double>(network.side(0, 1).bytes_handled) * 8 / 0.5 / 1e9;
}

std::string table() {
  std::string text = "# Goodput of an Active Message flow, as a share of 1 Gbit/s, over a wire of 100 us for a round trip,\n"
                     "# by loss and window.\n"
                     "# loss   window   selective   go-back-N\n";
  for (const double loss : {0.0, 0.001, 0.01, 0.03, 0.1}) {
    for (const uint32_t window : {4u, 16u, 64u}) {
      std::array<char, 64> line{};
      std::snprintf(line.data(), line.size(), "%6.3f %8u %11.2f %11.2f\n", loss, window, goodput(loss, window, Recovery::selective),
                    goodput(loss, window, Recovery::go_back_n));
      text += line.data();
    }
  }
  return text;
}

}  // namespace

TEST_CASE("goodput over a wire that loses is what it was") {
  // For an intended change: run with UNET_GOLDEN_WRITE=1, and review the difference.
  const char* const path = std::getenv("UNET_GOLDEN_GOODPUT");
  REQUIRE(path != nullptr);
  const std::string now = table();
  if (std::getenv("UNET_GOLDEN_WRITE") != nullptr) std::ofstream(path) << now;
  std::stringstream before;
  before << std::ifstream(path).rdbuf();
  CHECK(before.str() == now);
}

TEST_CASE("1 % loss costs a flow little, and any loss less than with go-back-N") {
  const double whole = goodput(0, kFlowWindow, Recovery::selective);
  CHECK(whole > 0.95);
  CHECK(goodput(0.01, kFlowWindow, Recovery::selective) > 0.9 * whole);
  for (const double loss : {0.001, 0.01, 0.03, 0.1}) {
    CHECK(goodput(loss, kFlowWindow, Recovery::selective) > goodput(loss, kFlowWindow, Recovery::go_back_n));
  }
}
