// bbr_test.cc - BBR: its filters and its model alone, and its behaviour on a simulated link, compared with CUBIC.
#include "ipstack/tcp/bbr.h"

#include <catch2/catch.hpp>

#include "ipstack/tcp/sim_bottleneck.h"

using namespace unet;
using namespace unet::tcp;
using namespace unet::tcp::sim;

TEST_CASE("BBR's bandwidth filter: the maximum of two cycles") {
  MaxBwFilter filter;
  CHECK(filter.max() == 0);
  filter.update(10);
  filter.update(7);
  CHECK(filter.max() == 10);
  filter.advance();
  filter.update(5);
  CHECK(filter.max() == 10);
  filter.advance();
  CHECK(filter.max() == 5);
  filter.advance();  // a cycle without a sample
  CHECK(filter.max() == 5);
  filter.update(20);
  CHECK(filter.max() == 20);
}

TEST_CASE("BBR's round filter forgets values older than its rounds, and keeps those half as old") {
  MaxRoundFilter filter;
  filter.update(9, 0, 10);
  for (uint32_t round = 1; round < 5; ++round) filter.update(1, round, 10);
  CHECK(filter.max() == 9);
  for (uint32_t round = 5; round < 10; ++round) filter.update(2, round, 10);
  CHECK(filter.max() == 9);
  filter.update(1, 10, 10);
  CHECK(filter.max() == 2);
  MaxRoundFilter last;
  last.update(9, 0, 1);
  last.update(3, 0, 1);
  CHECK(last.max() == 9);
  last.update(3, 1, 1);
  CHECK(last.max() == 3);
}

namespace {

constexpr uint32_t kMss = 1000;

// BBR alone, fed with rounds of ten ACKs from a path with a given rate.
struct Fed {
  Bbr bbr{{.now = kSecond, .rtt = 10 * kMillisecond, .delivered = 0xFFFF'0000, .seed = 1}, kMss, 10 * kMss};
  uint32_t window = 10 * kMss, delivered = 0xFFFF'0000;
  Nanoseconds now = kSecond;
  Nanoseconds trip = 10 * kMillisecond;

  void round(double rate, uint32_t in_flight, bool app_limited = false, uint32_t lost = 0) {
    const uint32_t before = delivered;
    const auto bytes = static_cast<uint32_t>(rate * static_cast<double>(trip) / 1e9);
    for (int i = 0; i < 10; ++i) {
      now += trip / 10;
      delivered += bytes / 10;
      RateSample sample{.now = now, .rtt = trip, .delivery_rate = rate, .newly_acked = bytes / 10, .in_flight = in_flight,
                        .total_delivered = delivered, .sacks = true, .has_record = true, .app_limited = app_limited,
                        .prior_delivered = before, .delivered = delivered - before, .lost = lost, .tx_in_flight = in_flight};
      if (i != 0) sample.prior_delivered -= bytes / 2;  // only the first ACK ends a round
      window = bbr.handle_ack(sample, window);
    }
  }
  void fill() {
    for (double rate = 1e6; rate < 8e6; rate *= 2) round(rate, 30'000);
    for (int i = 0; i < 4; ++i) round(8e6, 160'000);
  }
};

}  // namespace

TEST_CASE("BBR: Startup ends after three rounds without more bandwidth, Drain when the queue is gone") {
  Fed fed;
  CHECK(fed.bbr.pacing_rate() == Approx(2.77 * 10'000 / 0.01));
  for (double rate = 1e6; rate <= 8e6; rate *= 2) fed.round(rate, 30'000);
  CHECK(fed.bbr.state() == Bbr::State::startup);
  CHECK(fed.bbr.max_bw() == 8e6);
  fed.round(9e6, 160'000);
  fed.round(9e6, 160'000);
  CHECK(fed.bbr.state() == Bbr::State::startup);
  CHECK(fed.bbr.pacing_rate() == Approx(2.77 * 9e6 * 0.99));
  fed.round(9e6, 160'000);
  CHECK(fed.bbr.state() == Bbr::State::drain);
  CHECK(fed.bbr.pacing_rate() == Approx(0.5 * 9e6 * 0.99));
  CHECK(fed.window <= 2 * 90'000 + fed.bbr.extra_acked());
  fed.round(9e6, 80'000);
  CHECK(fed.bbr.state() == Bbr::State::probe_bw_cruise);
}

TEST_CASE("BBR: the shortest possible RTT does not overflow the pacing rate") {
  Bbr bbr({.now = kSecond, .rtt = 1, .delivered = 0, .seed = 1}, 65'000, 650'000);
  CHECK(bbr.pacing_rate() == 1e12);
  const RateSample sample{.now = kSecond + 1, .rtt = 1, .delivery_rate = 1e18, .newly_acked = 65'000, .in_flight = 0,
                          .total_delivered = 65'000, .sacks = true, .has_record = true, .delivered = 65'000};
  CHECK(bbr.handle_ack(sample, 650'000) == 715'000);
  CHECK(bbr.max_bw() == 1e12);
  CHECK(bbr.pacing_rate() == 1e12);
}

TEST_CASE("BBR: Drain ends after three rounds") {
  Fed fed;
  fed.fill();
  REQUIRE(fed.bbr.state() == Bbr::State::drain);
  for (int i = 0; i < 3; ++i) fed.round(8e6, 160'000);
  CHECK(fed.bbr.state() == Bbr::State::drain);
  fed.round(8e6, 160'000);
  CHECK(fed.bbr.state() == Bbr::State::probe_bw_down);
}

TEST_CASE("BBR: application-limited samples do not end Startup or lower the bandwidth, but may raise it") {
  Fed fed;
  for (int i = 0; i < 20; ++i) fed.round(1e6, 5000, true);
  CHECK(fed.bbr.state() == Bbr::State::startup);
  fed.fill();
  fed.round(8e6, 50'000);
  REQUIRE(fed.bbr.max_bw() == 8e6);
  for (int i = 0; i < 300; ++i) fed.round(1e6, 5000, true);
  CHECK(fed.bbr.max_bw() == 8e6);
  fed.round(9e6, 5000, true);
  CHECK(fed.bbr.max_bw() == 9e6);
}

TEST_CASE("BBR: losses in Cruise lower the short-term bounds, at most by 30 % each round, and Refill resets them") {
  Fed fed;
  fed.fill();
  for (int i = 0; i < 3; ++i) fed.round(8e6, 50'000);
  REQUIRE(fed.bbr.state() == Bbr::State::probe_bw_cruise);
  CHECK(fed.bbr.inflight_shortterm() == Bbr::kUnlimited);
  fed.round(4e6, 50'000);
  fed.bbr.handle_losses({.ranges = 1}, fed.window);
  const uint32_t window = fed.window;
  fed.round(4e6, 50'000);
  CHECK(fed.bbr.bw_shortterm() == Approx(0.7 * 8e6).epsilon(0.01));
  CHECK(fed.bbr.inflight_shortterm() == Approx(0.7 * window).epsilon(0.25));
  CHECK(fed.bbr.bw() == fed.bbr.bw_shortterm());
  for (int i = 0; i < 70 && fed.bbr.state() != Bbr::State::probe_bw_refill; ++i) fed.round(4e6, 50'000);
  REQUIRE(fed.bbr.state() == Bbr::State::probe_bw_refill);
  CHECK(fed.bbr.bw() == 8e6);
  CHECK(fed.bbr.inflight_shortterm() == Bbr::kUnlimited);
}

TEST_CASE("BBR: too many losses of a probe set the long-term bound to what fitted before; a spurious one is undone") {
  Fed fed;
  fed.fill();
  for (int i = 0; i < 100 && fed.bbr.state() != Bbr::State::probe_bw_up; ++i) fed.round(8e6, 60'000);
  REQUIRE(fed.bbr.state() == Bbr::State::probe_bw_up);
  CHECK(fed.bbr.pacing_rate() == Approx(1.25 * 8e6 * 0.99));
  const bool spurious = GENERATE(false, true);
  fed.bbr.handle_recovery(fed.window);
  // 100,000 bytes were in flight, 3000 are lost, 1000 of them just now. 2 % of 99,000 are 1980: these were lost before this record.
  fed.bbr.handle_losses({.has_too_much = true, .ranges = 1, .tx_in_flight = 100'000, .lost = 3000, .length = 1000}, fed.window);
  CHECK(fed.bbr.inflight_longterm() == 99'000);
  CHECK(fed.bbr.state() == Bbr::State::probe_bw_down);
  // One reaction per probe.
  fed.bbr.handle_losses({.has_too_much = true, .ranges = 1, .tx_in_flight = 50'000, .lost = 5000, .length = 1000}, fed.window);
  CHECK(fed.bbr.inflight_longterm() == 99'000);
  if (spurious) {
    fed.bbr.handle_spurious(fed.window);
    CHECK(fed.bbr.state() == Bbr::State::probe_bw_refill);
    CHECK(fed.bbr.inflight_longterm() == Bbr::kUnlimited);
    return;
  }
  fed.window = fed.bbr.handle_recovered(fed.window);
  for (int i = 0; i < 3; ++i) fed.round(8e6, 60'000);
  CHECK(fed.bbr.state() == Bbr::State::probe_bw_cruise);
  CHECK(fed.window <= 99'000 * 85 / 100);  // headroom for others
}

TEST_CASE("BBR: ProbeRTT after ten seconds without a new minimum RTT: half the BDP for 200 ms and a round trip") {
  Fed fed;
  fed.fill();
  Nanoseconds entered = 0;
  while (fed.now < 13 * kSecond && fed.bbr.state() != Bbr::State::probe_rtt) {
    fed.trip = 11 * kMillisecond;
    fed.round(8e6, 60'000);
    entered = fed.now;
  }
  REQUIRE(fed.bbr.state() == Bbr::State::probe_rtt);
  CHECK(entered > 11 * kSecond);
  CHECK(entered < 11200 * kMillisecond);
  CHECK(fed.bbr.min_rtt() == 11 * kMillisecond);
  CHECK(fed.window <= 8e6 * 0.01 / 2 + 1);  // by the minimum RTT known before
  fed.trip = 10 * kMillisecond;
  for (int i = 0; i < 19; ++i) fed.round(8e6, 40'000, true);
  CHECK(fed.bbr.state() == Bbr::State::probe_rtt);
  for (int i = 0; i < 4; ++i) fed.round(8e6, 40'000, true);
  CHECK(fed.bbr.state() == Bbr::State::probe_bw_cruise);
  CHECK(fed.bbr.min_rtt() == 10 * kMillisecond);
  CHECK(fed.window > 80'000);
}

TEST_CASE("BBR: an ECN mark ends Startup, and a spurious RTO is undone") {
  Fed fed;
  for (double rate = 1e6; rate <= 4e6; rate *= 2) fed.round(rate, 30'000);
  REQUIRE(fed.bbr.state() == Bbr::State::startup);
  const uint32_t window = fed.window;
  SECTION("a mark") {
    fed.bbr.handle_mark(30'000, fed.window);
    CHECK(fed.bbr.state() == Bbr::State::drain);
    CHECK(fed.bbr.inflight_longterm() >= 40'000);
  }
  SECTION("a time-out") {
    fed.bbr.handle_timeout(fed.window, false);
    fed.bbr.handle_timeout(kMss, true);
    CHECK(fed.bbr.handle_spurious(2 * kMss) == window);
    CHECK(fed.bbr.state() == Bbr::State::startup);
  }
}

// ---- on a link

namespace {

Options options_of(Algorithm algorithm) {
  Options options;
  options.congestion = algorithm;
  options.send_buffer = options.receive_buffer = 4 << 20;
  options.send_buffer_max = options.receive_buffer_max = 4 << 20;
  options.ack_delay = 0;
  return options;
}

// Share of the link's rate used from one time to another: payload of 1448 bytes in about 1540.
double share(const Bottleneck& link, uint64_t bytes, Nanoseconds time) {
  return static_cast<double>(bytes) * 8e9 / static_cast<double>(time) / link.bits_per_second;
}

struct Alone {
  double of_link = 0, mean_queue = 0, most_queue = 0;
  uint64_t timeouts = 0, retransmitted = 0;
  std::vector<Bbr::State> states;
};

Alone alone(const Bottleneck& link, const Options& options, Nanoseconds time, uint64_t seed = 1, Nanoseconds settled = kSecond) {
  SharedLink net(link, seed);
  const size_t flow = net.add({.options = options});
  Alone result;
  uint64_t steps = 0, before = 0;
  net.run(kSecond + time, [&] {
    const Congestion& congestion = net.sender(flow).congestion();
    if (congestion.is_bbr() && (result.states.empty() || result.states.back() != congestion.bbr().state())) {
      result.states.push_back(congestion.bbr().state());
    }
    if (net.now() < kSecond + settled) {
      before = net.received(flow);
      return;
    }
    ++steps;
    result.mean_queue += net.waiting();
    result.most_queue = std::max(result.most_queue, net.waiting());
  });
  REQUIRE(net.fault() == "");
  result.mean_queue /= static_cast<double>(steps);
  result.of_link = share(link, net.received(flow) - before, time - settled);
  result.timeouts = net.counters(flow).timeouts;
  result.retransmitted = net.counters(flow).retransmitted;
  return result;
}

}  // namespace

TEST_CASE("BBR fills a link of 100 Mbit/s and 10 ms with a short queue, where CUBIC fills the queue") {
  const Bottleneck deep{.queue = 1'000'000};  // eight times the BDP
  const Alone bbr = alone(deep, options_of(Algorithm::bbr), 6 * kSecond);
  Options reckless = options_of(Algorithm::cubic);
  reckless.hystart = false;
  const Alone cubic = alone(deep, reckless, 6 * kSecond);
  CAPTURE(bbr.of_link, bbr.mean_queue, bbr.most_queue, bbr.retransmitted, cubic.of_link, cubic.mean_queue, cubic.most_queue);
  CHECK(bbr.of_link > 0.85);
  CHECK(bbr.retransmitted == 0);
  CHECK(bbr.timeouts == 0);
  CHECK(bbr.mean_queue < 0.5 * 125'000);
  CHECK(bbr.mean_queue < cubic.mean_queue / 4);
  CHECK(bbr.most_queue < cubic.most_queue / 2);
}

TEST_CASE("BBR: a queue of a fifth of the BDP suffices") {
  const Alone bbr = alone({.queue = 25'000}, options_of(Algorithm::bbr), 8 * kSecond);
  CAPTURE(bbr.of_link, bbr.retransmitted, bbr.timeouts);
  CHECK(bbr.of_link > 0.85);
}

TEST_CASE("random loss of 1 %: BBR ignores it, CUBIC collapses") {
  const Bottleneck lossy{.queue = 1'000'000, .loss = 0.01};
  const Alone bbr = alone(lossy, options_of(Algorithm::bbr), 10 * kSecond);
  const Alone cubic = alone(lossy, options_of(Algorithm::cubic), 10 * kSecond);
  CAPTURE(bbr.of_link, bbr.timeouts, cubic.of_link);
  CHECK(bbr.of_link > 0.6);
  CHECK(cubic.of_link < 0.3);
}

TEST_CASE("BBR: all states in sequence, and the ten seconds of the minimum RTT filter") {
  const Bottleneck link{.bits_per_second = 10e6, .queue = 200'000, .delay = 20 * kMillisecond};
  const Alone bbr = alone(link, options_of(Algorithm::bbr), 24 * kSecond);
  using S = Bbr::State;
  REQUIRE(bbr.states.size() > 12);
  CHECK(bbr.states[0] == S::startup);
  CHECK(bbr.states[1] == S::drain);
  uint32_t probes = 0;
  for (size_t i = 2; i < bbr.states.size(); ++i) {
    const S from = bbr.states[i - 1], to = bbr.states[i];
    INFO(to_string(from) << " to " << to_string(to));
    probes += to == S::probe_rtt ? 1 : 0;
    switch (to) {
      case S::startup:
      case S::drain: FAIL("a second time"); break;
      case S::probe_bw_down: CHECK((from == S::drain || from == S::probe_bw_up)); break;
      case S::probe_bw_cruise: CHECK((from == S::drain || from == S::probe_bw_down || from == S::probe_rtt)); break;
      case S::probe_bw_refill: CHECK((from == S::probe_bw_cruise || from == S::probe_bw_down)); break;
      case S::probe_bw_up: CHECK(from == S::probe_bw_refill); break;
      case S::probe_rtt: break;
    }
  }
  CHECK(probes >= 1);
  CHECK(probes <= 3);
  CHECK(bbr.of_link > 0.85);
}

TEST_CASE("BBR follows a path that becomes slower, and faster again") {
  Bottleneck link{.queue = 500'000};
  SharedLink net(link, 1);
  const size_t flow = net.add({.options = options_of(Algorithm::bbr)});
  net.run(4 * kSecond);
  link.bits_per_second = 20e6;
  net.set_link(link);
  net.run(12 * kSecond);
  CHECK(static_cast<double>(net.info(flow).bbr_bw) == Approx(20e6 / 8 * 0.94).epsilon(0.1));
  uint64_t before = net.received(flow);
  net.run(14 * kSecond);
  CHECK(share(link, net.received(flow) - before, 2 * kSecond) > 0.8);
  link.bits_per_second = 100e6;
  net.set_link(link);
  net.run(22 * kSecond);
  before = net.received(flow);
  net.run(24 * kSecond);
  CHECK(share(link, net.received(flow) - before, 2 * kSecond) > 0.8);
  CHECK(net.fault() == "");
}

TEST_CASE("fairness: two BBR flows share within a factor of three, and BBR and CUBIC leave each other a share") {
  const auto seed = GENERATE(uint64_t{1}, uint64_t{2}, uint64_t{3});
  const auto of = [&](Algorithm first, Algorithm second, uint32_t queue) {
    SharedLink net({.bits_per_second = 50e6, .queue = queue}, seed);
    net.add({.options = options_of(first)});
    net.add({.options = options_of(second), .starts_at = 3 * kSecond + seed * 137 * kMillisecond});
    net.run(13 * kSecond);
    const std::array before{net.received(0), net.received(1)};
    net.run(33 * kSecond);
    CHECK(net.fault() == "");
    return std::array{static_cast<double>(net.received(0) - before[0]) * 8 / 20 / 50e6,
                      static_cast<double>(net.received(1) - before[1]) * 8 / 20 / 50e6};
  };
  const auto both = of(Algorithm::bbr, Algorithm::bbr, 125'000);
  CAPTURE(seed, both[0], both[1]);
  CHECK(both[0] + both[1] > 0.85);
  CHECK(std::max(both[0], both[1]) < 3 * std::min(both[0], both[1]));
  const auto mixed = of(Algorithm::cubic, Algorithm::bbr, 125'000);
  const auto other = of(Algorithm::bbr, Algorithm::cubic, 125'000);
  CAPTURE(mixed[0], mixed[1], other[0], other[1]);
  CHECK(mixed[0] + mixed[1] > 0.8);
  CHECK(std::min({mixed[0], mixed[1], other[0], other[1]}) > 0.05);
}

TEST_CASE("BBR: an application-limited sender is not slowed down, and restarts from idle at the old rate") {
  const Bottleneck link{.queue = 500'000};
  SharedLink net(link, 1);
  const size_t flow = net.add({.options = options_of(Algorithm::bbr)});
  net.run(4 * kSecond);
  const uint64_t rate = net.info(flow).bbr_bw;
  net.pause(flow, true);
  net.run(9 * kSecond);
  CHECK(net.info(flow).bbr_bw > rate * 9 / 10);
  net.pause(flow, false);
  const uint64_t before = net.received(flow);
  double most = 0;
  net.run(9010 * kMillisecond, [&] { most = std::max(most, net.waiting()); });  // then the next bandwidth probe is due
  CHECK(most < 40'000);
  net.run(9100 * kMillisecond);
  CHECK(share(link, net.received(flow) - before, 100 * kMillisecond) > 0.75);
}

TEST_CASE("BBR: ECN marks keep the queue short") {
  Options options = options_of(Algorithm::bbr);
  options.ecn = Ecn::on;
  const Alone bbr = alone({.queue = 1'000'000, .mark = 60'000}, options, 6 * kSecond);
  CAPTURE(bbr.of_link, bbr.mean_queue, bbr.most_queue);
  CHECK(bbr.of_link > 0.7);
  CHECK(bbr.most_queue < 125'000);
  CHECK(bbr.retransmitted == 0);
}
