// simulator_test.cc - the order of events and nodes, and what each fault of a link does.
#include "unet/base/simulator.h"

#include <catch2/catch.hpp>

#include <string>

namespace unet::simulator_test {
namespace {

// Records when it processes, and asks for the next time.
struct Ticker final : SimNode {
  Ticker(Simulator& simulator, Nanoseconds period) : of(simulator), every(period) { of.add(*this); }
  Nanoseconds process() override {
    calls.push_back(of.now());
    return every == kNever ? kNever : of.now() + every;
  }
  Simulator& of;
  Nanoseconds every;
  std::vector<Nanoseconds> calls;
};

struct Sent {
  std::vector<std::pair<int, Nanoseconds>> arrivals;  // number of the packet, and its time on the link
  int lost = 0, marked = 0;

  int later_than(Nanoseconds time) const {
    int count = 0;
    for (const auto& [packet, took] : arrivals) count += took > time ? 1 : 0;
    return count;
  }
  bool in_order() const { return std::is_sorted(arrivals.begin(), arrivals.end()); }
};

// Sends packets of 1000 bytes, one per `gap`.
Sent send(const SimLinkOptions& options, int packets = 10'000, Nanoseconds gap = kMillisecond, uint64_t seed = 1) {
  Simulator simulator(seed, 0);
  SimLink link(simulator, options);
  Sent result;
  for (int i = 0; i < packets; ++i, simulator.run_for(gap)) {
    result.lost += link.send(simulator.now(), 1000, [&, i, sent_at = simulator.now()](bool marked) {
      result.arrivals.emplace_back(i, simulator.now() - sent_at);
      result.marked += marked ? 1 : 0;
    }) ? 0 : 1;
  }
  simulator.run();
  return result;
}

}  // namespace

TEST_CASE("events happen by time, then by order, and before the nodes of the instant") {
  Simulator simulator(1, 0);
  Ticker node(simulator, kNever);
  std::string log;
  simulator.at(20, [&] { log += "c"; });
  simulator.at(10, [&] { log += "a"; });
  simulator.at(10, [&] {
    log += "b" + std::to_string(node.calls.size());
    node.wake();
    simulator.at(10, [&] { log += "again"; });
  });
  simulator.run(15);
  CHECK(log == "ab1again");
  CHECK(node.calls == std::vector<Nanoseconds>{0, 10});
  CHECK(simulator.now() == 15);
  simulator.run();
  CHECK(log == "ab1againc");
  CHECK(simulator.now() == 20);
}

TEST_CASE("a node processes when it asked to, after wake(), and at the start of each run; advance() handles events alone") {
  Simulator simulator(1, 0);
  Ticker often(simulator, 30), never(simulator, kNever);
  simulator.run(100);
  CHECK(often.calls == std::vector<Nanoseconds>{0, 30, 60, 90});
  never.wake();
  CHECK(simulator.step(100));
  CHECK(never.calls == std::vector<Nanoseconds>{0, 100});
  CHECK_FALSE(simulator.step(100));
  Nanoseconds handled = 0;
  simulator.at(150, [&] { handled = simulator.now(); });
  simulator.advance(200);
  CHECK(handled == 150);
  CHECK(often.calls.back() == 90);
  simulator.run(200);
  CHECK(often.calls.back() == 200);
}

TEST_CASE("a link's delay, rate and queue") {
  const Sent queued = send({.delay = 7, .bits_per_second = 8e6, .queue = 3000, .mark_above = 1500}, 6, 0);  // a millisecond each
  CHECK(queued.lost == 2);
  CHECK(queued.marked == 2);
  REQUIRE(queued.arrivals.size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(queued.arrivals[static_cast<size_t>(i)] == std::pair(i, (i + 1u) * kMillisecond + 7));
}

TEST_CASE("each fault of a link happens as often as its share says") {
  const auto about = [](int count, int expected) { return count > expected * 8 / 10 && count < expected * 12 / 10; };
  CHECK(about(send({.loss = 0.1}).lost, 1000));
  CHECK(about(send({.loss = 0.1, .frame = 500}).lost, 1900));
  CHECK(about(static_cast<int>(send({.duplicate = 0.1}).arrivals.size()) - 10'000, 1000));
  CHECK(about(send({.mark = 0.1}).marked, 1000));
  CHECK(send({.loss = 1}).arrivals.empty());
  CHECK(about(send({.late = 0.1, .late_by = 5}).later_than(4), 1000));
  CHECK(about(send({.jitter = 100}).later_than(49), 5000));
  CHECK(send({.stall = 0.001}).later_than(200 * kMillisecond) > 100);
  CHECK(send({.stall = 0.001}).in_order());
  CHECK_FALSE(send({.jitter = 5 * kMillisecond}).in_order());
  CHECK(send({.jitter = 5 * kMillisecond, .in_order = true}).in_order());
}

TEST_CASE("a seed gives the same simulation again, and another seed another") {
  const SimLinkOptions options{.jitter = kMillisecond, .loss = 0.1, .duplicate = 0.1};
  CHECK(send(options).arrivals == send(options).arrivals);
  CHECK(send(options).arrivals != send(options, 10'000, kMillisecond, 2).arrivals);
}

}  // namespace unet::simulator_test
