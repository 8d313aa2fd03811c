// sim_traffic.h - patterns of traffic of Active Messages over a simulated fat tree; for tests and the benchmark am-traffic.
#pragma once

#include <cmath>
#include <numeric>

#include "am/sim_fabric.h"

namespace unet::am::sim {

enum class Pattern : uint8_t {
  incast,       // all nodes to the first
  permutation,  // each node to another one, and from another one
  all_to_all,
};

struct Traffic {
  Pattern pattern{};
  uint32_t nodes = 16;
  uint32_t bytes = 4096;        // of each request
  double load = 0.9;            // share of the receivers' links that requests need; they begin at random times
  Tree tree;
  Nanoseconds warm_up = kMillisecond, time = kMillisecond;  // the figures are those of `time`, which follows
};

struct TrafficResult {
  double goodput = 0;           // share of the receivers' links
  Nanoseconds p99 = 0;          // from when a request is due until it is handled; a request that still waits has its age at the end
  double fairness = 0;          // Jain's index of the bytes of flows: 1 if all are equal, 1 / flows if one has all
  uint64_t dropped = 0;         // packets lost because a queue was full
};

// Pairs of a sender and a receiver.
inline std::vector<std::pair<uint32_t, uint32_t>> flows_of(const Traffic& traffic, Simulator& random) {
  std::vector<std::pair<uint32_t, uint32_t>> flows;
  std::vector<uint32_t> circle(traffic.nodes);
  std::iota(circle.begin(), circle.end(), 0);
  for (uint32_t i = traffic.nodes; i > 1; --i) std::swap(circle[i - 1], circle[random.below(i)]);
  for (uint32_t a = 0; a < traffic.nodes; ++a) {
    if (traffic.pattern == Pattern::permutation) flows.emplace_back(circle[a], circle[(a + 1) % traffic.nodes]);
    for (uint32_t b = 0; b < traffic.nodes; ++b) {
      if (a != b && (traffic.pattern == Pattern::all_to_all || (traffic.pattern == Pattern::incast && b == 0))) flows.emplace_back(a, b);
    }
  }
  return flows;
}

// A seed always gives the same figures.
inline TrafficResult simulate(const Traffic& traffic, uint64_t seed) {
  FlowOptions options;
  options.congestion.base_delay = (traffic.tree.leaf == 0 ? 2 : 4) * kIncastWire.delay;
  SimLinkOptions wire = kIncastWire;
  wire.queue = kIncastQueue * traffic.bytes;
  Network network(traffic.nodes, wire, seed, traffic.tree);
  const auto flows = flows_of(traffic, network);
  const uint32_t senders = traffic.pattern == Pattern::permutation ? 1 : traffic.nodes - 1;
  const double gap = traffic.bytes * 8e9 / wire.bits_per_second / traffic.load * senders;  // between requests of a flow, in the mean
  const Nanoseconds begin = network.now() + traffic.warm_up, end = begin + traffic.time;
  for (size_t i = 0; i < flows.size(); ++i) {
    network.connect(flows[i].first, flows[i].second, options, options);
    Side &from = network.side(i, 0), &to = network.side(i, 1);
    from.bytes = traffic.bytes;
    to.replies = 0;
    from.eager = to.eager = true;
    for (double time = static_cast<double>(network.now());;) {
      time -= std::log((static_cast<double>(network.below(1'000'000)) + 0.5) / 1e6) * gap;
      if (time >= static_cast<double>(end)) break;
      from.due.push_back(static_cast<Nanoseconds>(time));
      network.at(from.due.back(), [&from] {
        ++from.wanted;
        from.process_now();
      });
    }
  }
  network.run(begin);
  std::vector<std::pair<uint64_t, size_t>> before;  // bytes and requests of each flow
  for (size_t i = 0; i < flows.size(); ++i) before.emplace_back(network.side(i, 1).bytes_handled, network.side(i, 1).latencies.size());
  network.run(end);
  TrafficResult result{.dropped = network.lost_in_queues()};
  std::vector<Nanoseconds> latencies;
  double all = 0, squares = 0;
  for (size_t i = 0; i < flows.size(); ++i) {
    const Side &from = network.side(i, 0), &to = network.side(i, 1);
    const auto bytes = static_cast<double>(to.bytes_handled - before[i].first);
    all += bytes;
    squares += bytes * bytes;
    latencies.insert(latencies.end(), to.latencies.begin() + static_cast<ptrdiff_t>(before[i].second), to.latencies.end());
    for (size_t waiting = to.requests_handled; waiting < from.due.size(); ++waiting) latencies.push_back(end - from.due[waiting]);
  }
  const double receivers = static_cast<double>(flows.size()) / senders;
  result.goodput = all * 8e9 / static_cast<double>(traffic.time) / wire.bits_per_second / receivers;
  result.fairness = all * all / (squares * static_cast<double>(flows.size()));
  result.p99 = percentile(std::move(latencies), 0.99);
  return result;
}

}  // namespace unet::am::sim
