// sim_traffic.h - patterns of traffic over a simulated switch or fat tree, for any transport; for tests and the benchmarks am-traffic and
// tcp-traffic.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "unet/base/sim_switches.h"

namespace unet {

enum class TrafficPattern : uint8_t {
  incast,       // all nodes to the first
  permutation,  // each node to another one, and from another one
  all_to_all,
};

struct Traffic {
  TrafficPattern pattern{};
  uint32_t nodes = 16;
  uint32_t bytes = 4096;        // of each request
  double load = 0.9;            // share of the receivers' links that requests need; they begin at random times
  SimTree tree = {};
  uint64_t mark_above = 0;      // bytes in the queue of a port above which it marks packets; 0: never
  double bits_per_second = 100e9;
  Nanoseconds delay = 4 * kMicrosecond;  // through two links
  Nanoseconds warm_up = kMillisecond, time = kMillisecond;  // the figures are those of `time`, which follows

  // The links and ports. A port may queue 1024 requests, unless the tree has shared buffers.
  SimLinkOptions wire() const {
    return {.delay = delay, .bits_per_second = bits_per_second, .queue = uint64_t{1024} * bytes, .mark_above = mark_above};
  }
  // One way through the empty network.
  Nanoseconds least_delay() const { return tree.leaf == 0 ? delay : 2 * delay; }
  uint32_t senders() const { return pattern == TrafficPattern::permutation ? 1 : nodes - 1; }  // to each receiver
};

struct TrafficResult {
  double goodput = 0;           // share of the receivers' links
  Nanoseconds p99 = 0;          // from when a request is due until it has arrived; a request that still waits has its age at the end
  double fairness = 0;          // Jain's index of the bytes of flows: 1 if all are equal, 1 / flows if one has all
  uint64_t dropped = 0;         // packets lost because a queue was full
  uint64_t events = 0;          // of the simulator
};

inline Nanoseconds percentile(std::vector<Nanoseconds> of, double share) {
  if (of.empty()) return 0;
  std::sort(of.begin(), of.end());
  return of[static_cast<size_t>(share * static_cast<double>(of.size() - 1))];
}

// Pairs of a sender and a receiver.
inline std::vector<std::pair<uint32_t, uint32_t>> flows_of(const Traffic& traffic, Simulator& random) {
  std::vector<std::pair<uint32_t, uint32_t>> flows;
  std::vector<uint32_t> circle(traffic.nodes);
  std::iota(circle.begin(), circle.end(), 0);
  for (uint32_t i = traffic.nodes; i > 1; --i) std::swap(circle[i - 1], circle[random.below(i)]);
  for (uint32_t a = 0; a < traffic.nodes; ++a) {
    if (traffic.pattern == TrafficPattern::permutation) flows.emplace_back(circle[a], circle[(a + 1) % traffic.nodes]);
    for (uint32_t b = 0; b < traffic.nodes; ++b) {
      const bool incast = traffic.pattern == TrafficPattern::incast && b == 0;
      if (a != b && (traffic.pattern == TrafficPattern::all_to_all || incast)) flows.emplace_back(a, b);
    }
  }
  return flows;
}

// Runs a pattern over a network, which is a Simulator with
//   traffic()              what to run
//   open(from, to)         makes the next flow
//   due(flow)              a vector, to which this function adds the time of each request
//   request(flow)          sends the flow's next request, which is due now
//   latencies(flow)        of each request that has arrived, in order: a vector
//   bytes(flow)            that have arrived
//   lost_in_queues()       packets
// A seed of the network always gives the same figures.
template <typename Network>
TrafficResult run_traffic(Network& network) {
  const Traffic& traffic = network.traffic();
  const auto flows = flows_of(traffic, network);
  const double gap = traffic.bytes * 8e9 / traffic.bits_per_second / traffic.load * traffic.senders();  // mean, between requests of a flow
  const Nanoseconds begin = network.now() + traffic.warm_up, end = begin + traffic.time;
  for (size_t flow = 0; flow < flows.size(); ++flow) {
    network.open(flows[flow].first, flows[flow].second);
    for (double time = static_cast<double>(network.now());;) {
      time -= std::log((static_cast<double>(network.below(1'000'000)) + 0.5) / 1e6) * gap;
      if (time >= static_cast<double>(end)) break;
      network.due(flow).push_back(static_cast<Nanoseconds>(time));
      network.at(static_cast<Nanoseconds>(time), [&network, flow] { network.request(flow); });
    }
  }
  network.run(begin);
  std::vector<std::pair<uint64_t, size_t>> before;  // bytes and requests of each flow
  for (size_t flow = 0; flow < flows.size(); ++flow) before.emplace_back(network.bytes(flow), network.latencies(flow).size());
  network.run(end);
  std::vector<Nanoseconds> latencies;
  double all = 0, squares = 0;
  for (size_t flow = 0; flow < flows.size(); ++flow) {
    const std::vector<Nanoseconds>&due = network.due(flow), &arrived = network.latencies(flow);
    const auto bytes = static_cast<double>(network.bytes(flow) - before[flow].first);
    all += bytes;
    squares += bytes * bytes;
    latencies.insert(latencies.end(), arrived.begin() + static_cast<ptrdiff_t>(before[flow].second), arrived.end());
    for (size_t waiting = arrived.size(); waiting < due.size(); ++waiting) latencies.push_back(end - due[waiting]);
  }
  TrafficResult result{.dropped = network.lost_in_queues(), .events = network.events()};
  const double receivers = static_cast<double>(flows.size()) / traffic.senders();
  result.goodput = all * 8e9 / static_cast<double>(traffic.time) / traffic.bits_per_second / receivers;
  result.fairness = all * all / (squares * static_cast<double>(flows.size()));
  result.p99 = percentile(std::move(latencies), 0.99);
  return result;
}

}  // namespace unet
