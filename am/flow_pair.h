// flow_pair.h - two flows and the packets between them, which the test passes on by hand; for the tests of flows.
#pragma once

#include <map>
#include <vector>

#include "am/flow.h"

namespace unet::am::test {
inline constexpr Nanoseconds kDelay = 10 * kMicrosecond;

// Two flows and the packets between them, which the test passes on by hand.
struct Pair {
  explicit Pair(FlowOptions options = {}) : a(options), b(options) {}

  using Transmits = std::vector<Flow::Transmit>;
  Transmits out(Flow& flow) {
    Transmits all;
    while (flow.poll_released()) {
    }
    while (const auto each = flow.poll_transmit(now)) {
      all.push_back(*each);
      if (each->numbered) all.back().fields.kind = kind_of[&flow == &b][each->fields.sequence.value];
    }
    return all;
  }
  Flow::Arrival in(Flow& flow, const Flow::Transmit& transmit, bool keep = true) {
    return flow.handle_packet(transmit.fields, as_bytes(&transmit.arrived, sizeof transmit.arrived), keep, now);
  }
  Sequence request(Flow& flow) {
    const Sequence sequence = flow.begin(true, 64);
    kind_of[&flow == &b][sequence.value] = Kind::short_request;
    return sequence;
  }
  Sequence reply(Flow& flow) {
    const Sequence sequence = flow.begin(false, 64);
    kind_of[&flow == &b][sequence.value] = Kind::short_reply;
    return sequence;
  }
  // Passes on everything that `from` has to send; returns the number of new packets.
  int pass(Flow& from, Flow& to) {
    int fresh = 0;
    for (const auto& each : out(from)) fresh += in(to, each) == Flow::Arrival::fresh;
    return fresh;
  }
  int deliver(Flow& flow) {
    int count = 0;
    while (flow.poll_delivery()) ++count;
    return count;
  }

  Nanoseconds now = kSecond;
  Flow a, b;
  std::map<uint32_t, Kind> kind_of[2];
};

// A pair after 20 round trips, so that times are known.
struct KnownPair : Pair {
  explicit KnownPair(FlowOptions options = {}) : Pair(options) {
    for (int i = 0; i < 20; ++i) {
      request(a);
      auto there = out(a);
      now += kDelay / 2;
      in(b, there.at(0));
      deliver(b);
      reply(b);
      auto back = out(b);
      now += kDelay / 2;
      in(a, back.at(0));
      deliver(a);
    }
    now += kMillisecond;
    pass(a, b);  // the last reply is acknowledged
  }
  Transmits send(int count) {
    for (int i = 0; i < count; ++i) request(a);
    return out(a);
  }
  void handle_all() {
    while (b.poll_delivery()) b.handled();
  }
  // Passes on everything that b has to send, half a round trip later.
  void answer() {
    now += FlowOptions{}.ack_delay;
    auto back = out(b);
    now += kDelay / 2;
    for (const auto& each : back) in(a, each);
  }
};

}  // namespace unet::am::test
