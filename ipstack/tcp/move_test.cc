// move_test.cc - connections that move to another object, as to a child that a server forks, at every step of every kind of transfer, in
// networks that lose, repeat, delay and reorder. Both streams arrive, and no reset is sent. restore() refuses records that make no sense.
#include <catch2/catch.hpp>

#include <cstring>

#include "ipstack/tcp/sim_pair.h"
#include "unet/base/test_seeds.h"

using namespace unet;
using namespace unet::tcp;
using namespace unet::tcp::sim;

namespace {

Options options_of(std::mt19937_64& random) {
  Options options;
  options.mss = static_cast<uint16_t>(88 + random() % 1400);
  options.send_buffer = static_cast<uint32_t>(1000 + random() % 100'000);
  options.receive_buffer = static_cast<uint32_t>(1000 + random() % 100'000);
  options.receive_buffer_max = static_cast<uint32_t>(random() % 500'000);
  options.pacing = random() % 3 == 0;
  options.window_scaling = random() % 2 == 0;
  options.timestamps = random() % 2 == 0;
  options.sack = random() % 3 != 0;
  options.nagle = random() % 2 == 0;
  options.ecn = static_cast<Ecn>(random() % 3);
  options.mtu_probing = static_cast<MtuProbing>(random() % 3);
  options.congestion = static_cast<Algorithm>(random() % 3);
  if (random() % 3 == 0) options.ack_delay = random() % (200 * kMillisecond);
  if (random() % 2 == 0) options.ack_gather = random() % kMillisecond;
  options.rto_max = 5 * kSecond;
  options.data_timeout = 100'000 * kSecond;
  options.syn_timeout = 100'000 * kSecond;
  return options;
}

std::string describe(Pair& pair) {
  std::ostringstream text;
  text << "at " << pair.now() / kMillisecond << " ms";
  for (const size_t which : {0u, 1u}) {
    Side& side = pair.side(which);
    text << "\n  " << to_string(side.connection->state()) << ", moved " << side.moved << ", wrote " << side.written << " of "
         << side.plan.bytes << ", read " << side.read << ", timeouts " << side.counters.timeouts << ", retransmitted "
         << side.counters.retransmitted << ", resets " << side.counters.resets_sent << ", window " << side.connection->send_window();
  }
  return text.str();
}

void check_all_arrived(Pair& pair) {
  INFO(describe(pair));
  REQUIRE(pair.fault() == "");
  for (const size_t which : {0u, 1u}) {
    Side& side = pair.side(which);
    REQUIRE(side.read == pair.side(1 - which).plan.bytes);
    REQUIRE(side.ended);
    REQUIRE(side.urgent == pair.side(1 - which).urged);
    REQUIRE(side.connection->state() == State::closed);
    REQUIRE(side.connection->error() == Error::none);
    REQUIRE(side.counters.resets_sent <= side.counters.closed);  // what the network repeats may come after the end
    REQUIRE(side.chunks->available() == pair.pool(which).first);
    REQUIRE(side.records->available() == pair.pool(which).second);
  }
}

// The seed decides everything of the two ends. Returns how many times they moved.
uint64_t live(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto percent = [&](uint64_t most) { return static_cast<double>(random() % (most + 1)) / 100; };
  Wire wire;
  wire.delay = 1 + random() % (20 * kMillisecond);
  if (random() % 2 == 0) wire.jitter = 1 + random() % (2 * wire.delay);
  if (random() % 2 == 0) wire.loss = percent(15);
  if (random() % 2 == 0) wire.repeat = percent(15);
  if (random() % 2 == 0) wire.mark = percent(20);
  if (random() % 4 == 0) wire.mss_max = static_cast<uint16_t>(88 + random() % 1000);
  Pair pair(wire, seed);
  constexpr double kMoves[] = {1, 0.5, 0.1, 0.01};
  const uint64_t moving = random() % 3;  // one, the other, or both
  for (const size_t which : {0u, 1u}) {
    Side& side = pair.side(which);
    side.options = options_of(random);
    side.plan.bytes = random() % 5 == 0 ? 0 : random() % 100'000;
    side.plan.write = static_cast<uint32_t>(1 + random() % 20'000);
    side.plan.read = static_cast<uint32_t>(1 + random() % 20'000);
    if (random() % 3 == 0) side.plan.pause = random() % (20 * kMillisecond);
    side.plan.close_early = random() % 2 == 0;
    side.plan.urges = seed % 5 == which;
    side.plan.fast_open = random() % 4 == 0;
    side.plan.switches = random() % 4 == 0;
    if (moving != which) side.plan.moves = kMoves[random() % 4];
    if (random() % 3 == 0) pair.set_pool(which, static_cast<uint32_t>(8 + random() % 20), static_cast<uint32_t>(2 + random() % 20));
  }
  if (!pair.side(0).plan.close_early) pair.side(1).plan.close_early = true;
  pair.open(random() % 4 == 0);
  pair.run(1'000'000 * kSecond);
  CAPTURE(seed, moving);
  check_all_arrived(pair);
  return pair.side(0).moved + pair.side(1).moved;
}

struct Way {
  const char* name;
  Plan client, server;
  bool bare;  // no SACK, timestamps, scaling
  uint32_t receive_buffer = 256 * 1024;
};

const Way kWays[] = {
    {"bulk in both directions", {.bytes = 60'000, .close_early = true}, {.bytes = 60'000}, false},
    {"the same without options", {.bytes = 60'000, .close_early = true}, {.bytes = 60'000}, true},
    {"requests and answers", {.bytes = 20'000, .ahead = 2000, .close_early = true}, {.bytes = 20'000, .ahead = 0}, false},
    {"behind the peer's FIN", {.bytes = 100, .close_early = true}, {.bytes = 100'000}, false},
    {"a closed window", {.bytes = 60'000, .pause = 700 * kMillisecond, .close_early = true},
     {.bytes = 60'000, .read = 6000, .pause = 700 * kMillisecond}, false, 8000},
    {"the same without options", {.bytes = 60'000, .pause = 700 * kMillisecond, .close_early = true},
     {.bytes = 60'000, .read = 6000, .pause = 700 * kMillisecond}, true, 8000},
};

void prepare(Pair& pair, const Way& way) {
  for (const size_t which : {0u, 1u}) {
    Side& side = pair.side(which);
    side.plan = which == 0 ? way.client : way.server;
    side.options.send_buffer = side.options.send_buffer_max = 16'000;
    side.options.receive_buffer = way.receive_buffer;
    side.options.receive_buffer_max = 0;
    if (way.bare) side.options.sack = side.options.timestamps = side.options.window_scaling = false;
  }
}

}  // namespace

TEST_CASE("whatever the network does, and however often connections move, both streams arrive and no reset is sent") {
  uint64_t moved = 0;
  for (uint64_t seed = 1; seed <= test::seeds(400); ++seed) moved += live(seed);
  CHECK(moved > 100 * test::seeds(400));
}

TEST_CASE("a connection moves once, at each step of a transfer") {
  const bool lossy = GENERATE(false, true);
  Wire wire{.delay = 5 * kMillisecond, .bits_per_second = 100e6};
  if (lossy) wire = {.delay = 5 * kMillisecond, .jitter = 5 * kMillisecond, .loss = 0.03, .repeat = 0.03};
  for (const Way& way : kWays) {
    for (const size_t which : {0u, 1u}) {
      uint64_t steps = 1, moved = 0, sent_again = 0;  // the last without a move
      for (uint64_t at = 0; at <= steps; at += test::kSanitized && at != 0 ? 10 : 1) {
        Pair pair(wire, 7);
        prepare(pair, way);
        pair.side(which).plan.move_at = at;
        pair.open(false);
        pair.run(10'000 * kSecond);
        CAPTURE(way.name, which, at, lossy);
        check_all_arrived(pair);
        steps = pair.steps();
        moved += pair.side(which).moved;
        const uint64_t retransmitted = pair.side(0).counters.retransmitted + pair.side(1).counters.retransmitted;
        if (at == 0) sent_again = retransmitted;
        // Where nothing is lost, a move is no reason to send anything again.
        if (!lossy) CHECK(retransmitted == sent_again);
      }
      CAPTURE(way.name, which, steps);
      if (way.client.bytes != 100 || which == 1) CHECK(moved > 20);  // a FIN that is on its way stays where it is
    }
  }
}
