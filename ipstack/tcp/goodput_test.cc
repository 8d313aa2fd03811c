// goodput_test.cc - goodput under loss, delay and reordering, in virtual time: no less than the formulas of the RFCs predict.
#include <catch2/catch.hpp>

#include <cmath>

#include "ipstack/tcp/sim_bottleneck.h"

using namespace unet;
using namespace unet::tcp;
using namespace unet::tcp::sim;

namespace {

constexpr double kRate = 200e6;        // bits per second
constexpr double kPayload = 1448;      // bytes of a segment
constexpr double kUsed = kRate / 8 * kPayload / (kPayload + 72) / 1e6;  // MB/s of a full link

struct Outcome {
  double goodput = 0;  // MB/s
  uint64_t recoveries = 0, undone = 0, timeouts = 0;
};

// Means over several seeds. Each run is measured for `seconds`, after a quarter of that. Slow start ends with a window far above the mean,
// and several losses must reduce it. On a path with an RTT of 100 ms this takes 10 s.
Outcome stream(Bottleneck link, Algorithm algorithm, uint64_t seconds, Nanoseconds sound_delay = 50 * kMicrosecond) {
  constexpr uint64_t kSeeds = 6;
  const Nanoseconds before = seconds * kSecond / 4;
  Outcome sum;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    // The handshake sees a healthy path: its measurements are useless for the impaired path that follows.
    Bottleneck sound = link;
    sound.loss = sound.late = sound.acks_lost = sound.acks_late = 0;
    sound.turn = 0;
    sound.delay = sound_delay;
    SharedLink wire(sound, seed);
    Options options;
    options.congestion = algorithm;
    options.ack_gather = seed % 2 == 0 ? 5 * kMicrosecond : 0;
    const size_t it = wire.add({.options = options});
    const Nanoseconds start = wire.now();
    wire.run(start + 2 * kMillisecond);
    wire.set_link(link);
    wire.run(start + before);
    const uint64_t received = wire.received(it);
    wire.run(start + before + seconds * kSecond);
    REQUIRE(wire.fault() == "");
    sum.goodput += static_cast<double>(wire.received(it) - received) / static_cast<double>(seconds) / 1e6 / kSeeds;
    sum.recoveries += wire.counters(it).recoveries;
    sum.undone += wire.counters(it).undone;
    sum.timeouts += wire.counters(it).timeouts;
  }
  return sum;
}

// RFC 9438, 5.2: AIMD throughput in MB/s: 3/2 for halving the window, with an ACK for each segment.
double friendly(double loss, double round_trip) { return std::sqrt(1.5 / loss) * kPayload / round_trip / 1e6; }

}  // namespace

TEST_CASE("reordering costs nothing: needless recoveries are undone") {
  for (const Nanoseconds turn : {Nanoseconds{0}, 300 * kMicrosecond}) {
    for (const Algorithm algorithm : {Algorithm::cubic, Algorithm::newreno}) {
      const Outcome it = stream({.bits_per_second = kRate, .delay = kMillisecond, .late = 0.01, .late_by = kMillisecond, .turn = turn},
                                algorithm, 2);
      INFO("turn " << turn << ", goodput " << it.goodput << ", recoveries " << it.recoveries << ", undone " << it.undone);
      CHECK(it.goodput > 0.97 * kUsed);
      CHECK(it.undone * 10 >= it.recoveries * 8);
      CHECK(it.recoveries != 0);
    }
  }
}

TEST_CASE("segments overtaken by their retransmission cost little: PAWS drops them, and a DSACK reports them") {
  const Outcome it = stream({.bits_per_second = 5 * kRate, .delay = kMillisecond, .late = 0.002, .late_by = 3 * kMillisecond,
                             .turn = 100 * kMicrosecond},
                            Algorithm::cubic, 2);
  INFO("goodput " << it.goodput << ", recoveries " << it.recoveries << ", undone " << it.undone);
  CHECK(it.goodput > 0.9 * 5 * kUsed);
  CHECK(it.undone * 10 >= it.recoveries * 9);
}

// RFC 8985, 6.2, step 4: the reordering window grows by a quarter of the minimum RTT, here of an earlier path that was 50 times as short.
TEST_CASE("RACK's reordering window grows up to an RTT, however short the minimum RTT was") {
  for (const double gigabits : {1.0, 2.0}) {
    const Outcome it = stream({.bits_per_second = gigabits * 1e9, .delay = kMillisecond, .acks_late = 0.01, .late = 0.01,
                               .late_by = kMillisecond, .turn = 100 * kMicrosecond},
                              Algorithm::cubic, 2, 20 * kMicrosecond);
    const double used = kUsed * gigabits * 1e9 / kRate;
    INFO("goodput " << it.goodput << " of " << used << ", recoveries " << it.recoveries << ", undone " << it.undone);
    CHECK(it.goodput > 0.8 * used);
    CHECK(it.recoveries < 6 * 400);
  }
}

TEST_CASE("stretch ACKs reduce the window no more than an ACK for each segment") {
  for (const double loss : {0.001, 0.003, 0.01}) {
    for (const Nanoseconds turn : {Nanoseconds{0}, 500 * kMicrosecond, kMillisecond}) {
      const Outcome it = stream({.bits_per_second = 10 * kRate, .delay = kMillisecond, .loss = loss, .turn = turn}, Algorithm::cubic, 4);
      // Each direction adds a polling interval, or half of one.
      const double expected = friendly(loss, 0.002 + 1.5e-9 * static_cast<double>(turn));
      INFO("loss " << loss << ", turn " << turn << ", goodput " << it.goodput << " of " << expected << ", time-outs " << it.timeouts);
      CHECK(it.goodput > expected);
      CHECK(it.goodput < 1.5 * expected);
    }
  }
}

TEST_CASE("CUBIC's goodput on a long lossy path matches the formula, also with ACK loss") {
  for (const double loss : {0.001, 0.01}) {
    for (const Nanoseconds delay : {10 * kMillisecond, 50 * kMillisecond}) {
      const Outcome it =
          stream({.bits_per_second = 10 * kRate, .delay = delay, .loss = loss, .acks_lost = loss}, Algorithm::cubic, 40);
      const double expected = friendly(loss, 2e-9 * static_cast<double>(delay));
      INFO("loss " << loss << ", delay " << delay << ", goodput " << it.goodput << " of " << expected << ", time-outs " << it.timeouts);
      CHECK(it.goodput > expected);
      CHECK(it.goodput < 1.5 * expected);
    }
  }
}

TEST_CASE("undo never takes a lost segment for a late one") {
  const Outcome it = stream({.bits_per_second = 10 * kRate, .delay = kMillisecond, .loss = 0.02}, Algorithm::cubic, 2);
  CHECK(it.recoveries > 100);
  CHECK(it.undone * 100 <= it.recoveries);
}
