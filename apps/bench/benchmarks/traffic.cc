// traffic.cc - the benchmarks am-traffic and tcp-traffic: patterns of traffic over simulated switches, in virtual time and without a
// session.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "am/sim_traffic.h"
#include "apps/bench/benchmarks/methods.h"
#include "apps/bench/machine/memory_use.h"
#include "ipstack/tcp/sim_traffic.h"

namespace unet::bench {

namespace {

constexpr uint32_t kLoads[] = {50, 90};        // percent
constexpr double kLink = Traffic{}.bits_per_second / 8e9;  // GB/s
constexpr SimTree kSwitch{}, kTree{4, 4, 16 << 20}, kTreeOf4to1{4, 1, 16 << 20};
constexpr uint64_t kMarkAbove = 128 << 10;     // as many bytes as a link carries in 10 us, about a round trip

enum class Control : uint8_t { active_messages, cubic, cubic_with_ecn, dctcp };

struct SimulatedNetwork {
  const char *bench, *name, *what;
  SimTree tree;
  Control control;
};
constexpr SimulatedNetwork kNetworks[] = {
    {"am-traffic", "sim-switch", "one switch, whose ports have queues of 4 MiB", kSwitch, Control::active_messages},
    {"am-traffic", "sim-tree", "a fat tree: leaves of 4 nodes, 4 spines, 16 MiB that the ports of a switch share", kTree,
     Control::active_messages},
    {"am-traffic", "sim-tree-4to1", "the same with one spine: 4 nodes share a link between switches", kTreeOf4to1,
     Control::active_messages},
    {"tcp-traffic", "tcp-sim-switch", "sim-switch with marks", kSwitch, Control::cubic_with_ecn},
    {"tcp-traffic", "tcp-sim-tree", "sim-tree with marks", kTree, Control::cubic_with_ecn},
    {"tcp-traffic", "tcp-sim-tree-4to1", "sim-tree-4to1 with marks", kTreeOf4to1, Control::cubic_with_ecn},
    {"tcp-traffic", "tcp-sim-tree-4to1-drops", "sim-tree-4to1, without marks", kTreeOf4to1, Control::cubic},
    {"tcp-traffic", "tcp-sim-tree-4to1-dctcp", "sim-tree-4to1 with marks, which DCTCP counts", kTreeOf4to1, Control::dctcp}};

struct NamedPattern {
  const char* name;
  TrafficPattern pattern;
};
constexpr NamedPattern kPatterns[] = {
    {"incast", TrafficPattern::incast}, {"permutation", TrafficPattern::permutation}, {"all_to_all", TrafficPattern::all_to_all}};

struct Samples {
  std::vector<double> goodput, p99, fairness;
};

// The cost of simulations, by run.
struct Costs {
  std::vector<double> events, memory;  // per second; bytes per node

  template <typename Network>
  TrafficResult run(Network&& network, uint64_t memory_before) {
    const Nanoseconds begun = monotonic_now();
    const TrafficResult result = run_traffic(network);
    events.push_back(static_cast<double>(result.events) * 1e9 / static_cast<double>(monotonic_now() - begun));
    memory.push_back(static_cast<double>(std::max(own_memory(getpid()), memory_before) - memory_before) / network.traffic().nodes);
    return result;
  }
};

TrafficResult simulate(Control control, const Traffic& traffic, uint64_t seed, Costs& costs) {
  malloc_trim(0);  // what an earlier simulation has freed is not this one's
  const uint64_t before = own_memory(getpid());
  if (control == Control::active_messages) return costs.run(am::sim::TrafficNetwork(traffic, seed), before);
  const tcp::Ecn ecn = control == Control::cubic ? tcp::Ecn::off : tcp::Ecn::on;
  const tcp::Algorithm algorithm = control == Control::dctcp ? tcp::Algorithm::dctcp : tcp::Algorithm::cubic;
  return costs.run(tcp::sim::TrafficNetwork(traffic, tcp::sim::traffic_options(traffic, algorithm, ecn), seed), before);
}

void add_records(std::vector<Record>& records, const Record& blank, const std::string& of, const Samples& samples) {
  const auto add = [&](const std::string& metric, const char* unit, Summary summary) {
    Record& record = records.emplace_back(blank);
    record.metric = metric + of;
    record.unit = unit;
    record.summary = std::move(summary);
    record.slices = samples.p99.size();
  };
  add("goodput", "GB/s", summarize_rates(samples.goodput));
  records.back().limit = kLink;
  records.back().ratio = records.back().summary.p50 / kLink;
  records.back().baseline = "the receivers' links";
  add("p99", "ns", summarize(samples.p99));
  add("fairness", "", summarize_rates(samples.fairness));
}

void measure_network(std::vector<Record>& records, const Benchmark& benchmark, const PathInfo& path, uint32_t nodes,
                     const MeasureOptions& options) {
  const auto network = std::find_if(std::begin(kNetworks), std::end(kNetworks), [&](const SimulatedNetwork& each) {
    return each.name == path.name;
  });
  Costs costs;
  for (const NamedPattern& pattern : kPatterns) {
    for (const uint32_t load : kLoads) {
      Samples samples;
      for (uint32_t seed = 1; seed <= options.repeat; ++seed) {
        const Traffic traffic{.pattern = pattern.pattern, .nodes = nodes, .load = load / 100.0, .tree = network->tree,
                              .mark_above = network->control >= Control::cubic_with_ecn ? kMarkAbove : 0};
        const TrafficResult result = simulate(network->control, traffic, seed, costs);
        samples.goodput.push_back(result.goodput * kLink);
        samples.p99.push_back(static_cast<double>(result.p99));
        samples.fairness.push_back(result.fairness);
      }
      add_records(records, record_without_figures(benchmark, path, nodes, options),
                  std::string("_") + pattern.name + "_load_" + std::to_string(load) + "%", samples);
    }
  }
  records.push_back(record_of_values(benchmark, path, nodes, options, "simulator_events", "events/s", costs.events));
  records.push_back(record_of_values(benchmark, path, nodes, options, "simulator_memory_per_node", "B",
                                     {*std::max_element(costs.memory.begin(), costs.memory.end())}));
}

}  // namespace

void add_traffic(Paths& paths) {
  for (const SimulatedNetwork& network : kNetworks) {
    const bool is_am = network.control == Control::active_messages;
    const std::string links = "100 Gbit/s links of 2 us, requests of 4 KiB at random times, flows keep to one way (ECMP), ";
    const char* control = "no congestion marks";
    if (network.control == Control::cubic) control = "CUBIC without ECN";
    if (network.control == Control::cubic_with_ecn) control = "CUBIC with ECN, marks above 128 KiB in the queue of a port";
    if (network.control == Control::dctcp) control = "DCTCP, marks above 128 KiB in the queue of a port";
    const std::string over = is_am ? "Active Messages' flows over a simulated network: " : "our TCP over a simulated network: ";
    paths.push_back(std::make_unique<PathWithoutSession>(PathInfo{
        .name = network.name,
        .kind = Kind::ours,
        .what = over + network.what,
        .setting = links + control,
        .only = {network.bench}}));
  }
}

Records measure_traffic(const Benchmark& benchmark, const std::vector<PathInfo>& paths, const std::vector<uint32_t>& sizes,
                        const MeasureOptions& options) {
  std::vector<Record> records;
  for (const uint32_t nodes : sizes) {
    std::fprintf(stderr, "unet-bench: simulating %u nodes\n", nodes);
    for (const PathInfo& path : paths) measure_network(records, benchmark, path, nodes, options);
  }
  return records;
}

}  // namespace unet::bench
