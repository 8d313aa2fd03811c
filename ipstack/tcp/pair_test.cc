// pair_test.cc - two connections in a simulated network: hundreds of seeds of loss, duplication, reordering, delay, small windows and
// pools.
//
// Invariant: both streams arrive byte for byte, both ends close, and no memory leaks.
#include <catch2/catch.hpp>

#include "ipstack/tcp/sim_pair.h"
#include "unet/base/test_seeds.h"

using namespace unet;
using namespace unet::tcp;
using namespace unet::tcp::sim;

namespace {

Options options_of(std::mt19937_64& random) {
  Options options;
  options.mss = static_cast<uint16_t>(88 + random() % 1400);
  options.send_buffer = static_cast<uint32_t>(1 + random() % 200'000);
  options.receive_buffer = static_cast<uint32_t>(1 + random() % 200'000);
  options.send_buffer_max = static_cast<uint32_t>(random() % 500'000);
  options.receive_buffer_max = static_cast<uint32_t>(random() % 500'000);
  draw_options(random, options, true);
  return options;
}

// Events that all simulated connections together must meet.
struct Seen {
  uint64_t too_big = 0, marks = 0, reductions = 0, spurious = 0, syn_data = 0, black_holes = 0, urgent = 0;
} seen;

// Simulates one connection; the seed decides everything.
void live(uint64_t seed) {
  std::mt19937_64 random(seed);
  SimLinkOptions link = draw_link(random, 20);
  uint16_t mss_max = 0;
  if (random() % 3 == 0) link.stall = draw_percent(random, 2);
  if (random() % 2 == 0) link.mark = draw_percent(random, 20);
  if (random() % 3 == 0) link.bits_per_second = 1e6 * static_cast<double>(1 + random() % 1000);
  if (random() % 2 == 0) link.queue = 5000 + random() % 100'000;
  link.mark_above = link.queue / 2;
  if (random() % 4 == 0) mss_max = static_cast<uint16_t>(88 + random() % 1000);
  Pair pair(link, seed);
  pair.mss_max = mss_max;
  pair.silent = mss_max >= 536 && random() % 2 == 0;
  for (const size_t which : {0u, 1u}) {
    Side& side = pair.side(which);
    side.options = options_of(random);
    if (pair.silent && side.options.mtu_probing == MtuProbing::off) side.options.mtu_probing = MtuProbing::black_hole;
    side.plan.bytes = random() % 5 == 0 ? 0 : random() % 200'000;
    side.plan.write = static_cast<uint32_t>(1 + random() % 20'000);
    side.plan.read = static_cast<uint32_t>(1 + random() % 20'000);
    if (side.options.receive_buffer < 2000 || side.options.send_buffer < 2000) side.plan.bytes /= 50;
    if (random() % 4 == 0) side.plan.pause = random() % (20 * kMillisecond);
    side.plan.close_early = random() % 2 == 0;
    side.plan.fast_open = random() % 2 == 0;
    side.plan.switches = random() % 4 == 0;
    side.plan.urges = seed % 3 == which;
    if (random() % 3 == 0) {
      const auto chunks = static_cast<uint32_t>(4 + random() % 20);
      pair.set_pool(which, chunks, static_cast<uint32_t>(1 + random() % 20));
    }
  }
  if (!pair.side(0).plan.close_early) pair.side(1).plan.close_early = true;
  pair.open(random() % 4 == 0);
  pair.run(100'000 * kSecond);
  INFO("seed " << seed << ", " << describe(pair));
  REQUIRE(pair.fault() == "");
  for (const size_t which : {0u, 1u}) {
    Side& side = pair.side(which);
    REQUIRE(side.read == pair.side(1 - which).plan.bytes);
    REQUIRE(side.ended);
    REQUIRE(side.urgent == pair.side(1 - which).urged);
    if (side.urgent != 0) ++seen.urgent;
    REQUIRE(side.connection->state() == State::closed);
    REQUIRE(side.connection->error() == Error::none);
    REQUIRE(side.chunks->available() == pair.pool(which).first);
    REQUIRE(side.records->available() == pair.pool(which).second);
    const Info info = side.connection->info(pair.now());
    REQUIRE(info.bytes_acked == side.plan.bytes);
    REQUIRE(info.bytes_received == side.read);
    REQUIRE(info.bytes_sent == side.plan.bytes + info.bytes_retrans);
    seen.spurious += side.counters.spurious;
    seen.syn_data += info.syn_data ? 1 : 0;
    seen.marks += side.counters.marks;
    seen.reductions += side.counters.reductions;
    seen.too_big += side.counters.too_big;
    seen.black_holes += side.counters.black_holes;
    REQUIRE(side.counters.bad_sack == 0);
    REQUIRE(side.counters.blind_reset == 0);
  }
}

}  // namespace

TEST_CASE("whatever the network does, both streams arrive and both ends close") {
  seen = {};
  for (uint64_t seed = 1; seed <= test::seeds(400); ++seed) live(seed);
  // All of these events happened.
  CHECK(seen.too_big != 0);
  CHECK(seen.black_holes != 0);
  CHECK(seen.urgent != 0);
  CHECK(seen.marks != 0);
  CHECK(seen.syn_data != 0);
  CHECK(seen.spurious != 0);
  CHECK(seen.reductions != 0);
}

TEST_CASE("readers that pause for longer than the user timeout lose nothing, and the window reopens soon") {
  for (uint64_t seed = 1; seed <= test::seeds(100); ++seed) {
    std::mt19937_64 random(seed);
    Pair pair({.delay = kMillisecond + random() % (20 * kMillisecond)}, seed);
    for (const size_t which : {0u, 1u}) {
      Side& side = pair.side(which);
      side.options.data_timeout = 2 * kSecond;
      side.options.receive_buffer = 20'000u << random() % 5;  // with and without window scaling
      side.options.send_buffer = 100'000;
      side.plan.bytes = 200'000;
      if (random() % 3 != 0) side.plan.pause = 2500 * kMillisecond + random() % (2 * kSecond);
      side.plan.close_early = which == 1 || random() % 2 == 0;
    }
    pair.open(false);
    pair.run(10'000 * kSecond);
    INFO("seed " << seed << ", " << describe(pair));
    REQUIRE(pair.fault() == "");
    for (const size_t which : {0u, 1u}) {
      REQUIRE(pair.side(which).read == 200'000);
      REQUIRE(pair.side(which).connection->error() == Error::none);
      REQUIRE(pair.side(which).finished_at < 100 * kSecond);
    }
  }
}

namespace {

struct Goodput {
  double of_link = 0;  // share of the link's capacity until all data arrived
  uint64_t timeouts = 0, retransmitted = 0;
};

// A bulk transfer in one direction.
Goodput stream(const SimLinkOptions& link, const Options& options, uint64_t bytes, uint64_t seed) {
  Pair pair(link, seed);
  for (const size_t which : {0u, 1u}) {
    pair.side(which).options = options;
    pair.set_pool(which, 4096, 8192);
  }
  pair.side(0).plan.bytes = bytes;
  pair.side(0).plan.write = 65536;
  pair.side(0).plan.close_early = true;
  pair.open(false);
  const Nanoseconds start = pair.now();
  pair.run(1000 * kSecond);
  REQUIRE(pair.fault() == "");
  REQUIRE(pair.side(1).read == bytes);
  REQUIRE(pair.side(1).ended);
  const double seconds = static_cast<double>(pair.side(1).finished_at - start) / 1e9;
  return {static_cast<double>(bytes) * 8 / link.bits_per_second / seconds, pair.side(0).counters.timeouts,
          pair.side(0).counters.retransmitted};
}

}  // namespace

TEST_CASE("goodput of NewReno, CUBIC and BBR on a link, with loss and with reordering") {
  Options options;
  options.send_buffer = options.receive_buffer = 2'000'000;
  options.congestion = GENERATE(Algorithm::newreno, Algorithm::cubic, Algorithm::bbr);
  options.pacing = GENERATE(false, true);
  const bool grow = GENERATE(false, true);
  if (grow) {  // buffer tuning from a small size
    options.send_buffer = options.receive_buffer = 20'000;
    options.send_buffer_max = options.receive_buffer_max = 2'000'000;
  }
  if (test::kSanitized && !(options.pacing && grow)) return;  // speed needs no sanitizer
  const SimLinkOptions clean{.delay = 5 * kMillisecond, .bits_per_second = 100e6, .queue = 150'000, .mark_above = 75'000};
  const Goodput full = stream(clean, options, 12'000'000, 1);
  SimLinkOptions lossy = clean;
  lossy.loss = 0.01;
  const Goodput loss = stream(lossy, options, 1'500'000, 2);
  SimLinkOptions late = clean;
  late.jitter = 2 * kMillisecond;
  const Goodput reordered = stream(late, options, 3'000'000, 3);
  CAPTURE(options.pacing, options.receive_buffer);
  CAPTURE(full.of_link, full.timeouts, loss.of_link, loss.timeouts, reordered.of_link, reordered.timeouts, reordered.retransmitted);
  CHECK(full.of_link > 0.8);
  CHECK(loss.of_link > 0.1);  // MSS / RTT * 1.22 / sqrt(p) is 0.13 (Mathis et al., 1997)
  CHECK(reordered.of_link > (options.receive_buffer < 100'000 ? 0.25 : 0.4));
  CHECK(full.timeouts + loss.timeouts + reordered.timeouts == 0);
}

TEST_CASE("a path that loses long segments and does not say so") {
  const auto mode = GENERATE(MtuProbing::black_hole, MtuProbing::on);
  const auto passes = GENERATE(uint16_t{600}, uint16_t{1100}, uint16_t{1459}, uint16_t{1460});
  for (uint64_t seed = 1; seed <= test::seeds(1); ++seed) {
    Pair pair({.delay = 5 * kMillisecond, .bits_per_second = 10e6}, seed);
    pair.mss_max = passes;
    pair.silent = true;
    for (const size_t which : {0u, 1u}) pair.set_pool(which, 4096, 8192);
    // Too little to fill the path: a probe lost to congestion would count as too long, for ten minutes.
    pair.side(1).options.receive_buffer = pair.side(1).options.receive_buffer_max = 60'000;
    Side& side = pair.side(0);
    side.options.mtu_probing = mode;
    side.plan = {.bytes = 3'000'000, .write = 65'536, .close_early = true};
    pair.open(false);
    const Nanoseconds start = pair.now();
    pair.run(1000 * kSecond);
    INFO("seed " << seed << ", path " << passes << ", mode " << static_cast<int>(mode) << ", " << describe(pair));
    REQUIRE(pair.fault() == "");
    REQUIRE(pair.side(1).read == side.plan.bytes);
    CAPTURE(side.connection->mss(), side.counters.path_probes, side.counters.path_probes_lost);
    CHECK(side.connection->mss() + 12u <= passes);
    CHECK(side.connection->mss() + 12u + 8u > passes);
    const bool hole = mode == MtuProbing::black_hole ? passes < 1460 : passes < 1024;
    CHECK(side.counters.black_holes == (hole ? passes < 1024 && mode == MtuProbing::black_hole ? 2 : 1 : 0));
    // 2.5 s at the link's rate, plus the RTOs.
    CHECK(pair.side(1).finished_at - start < (hole ? 12 : 6) * kSecond);
    CHECK(side.counters.path_probes_lost <= 10);
  }
}
