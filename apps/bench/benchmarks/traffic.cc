// traffic.cc - the benchmark am-traffic: patterns of Active Messages over simulated fat trees, in virtual time and without a session.
#include <algorithm>
#include <cstdio>

#include "am/sim_traffic.h"
#include "apps/bench/benchmarks/methods.h"

namespace unet::bench {

namespace {

constexpr uint32_t kLoads[] = {50, 90};        // percent
constexpr double kLink = am::sim::kIncastWire.bits_per_second / 8e9;  // GB/s
constexpr uint64_t kSharedBuffer = 16 << 20;   // of a switch

struct SimulatedNetwork {
  const char *name, *what;
  am::sim::Tree tree;
};
constexpr SimulatedNetwork kNetworks[] = {
    {"sim-switch", "one switch, whose ports have queues of 4 MiB", {}},
    {"sim-tree", "a fat tree: leaves of 4 nodes, 4 spines, 16 MiB that the ports of a switch share", {4, 4, kSharedBuffer}},
    {"sim-tree-4to1", "the same with one spine: 4 nodes share a link between switches", {4, 1, kSharedBuffer}}};

struct NamedPattern {
  const char* name;
  am::sim::Pattern pattern;
};
constexpr NamedPattern kPatterns[] = {
    {"incast", am::sim::Pattern::incast}, {"permutation", am::sim::Pattern::permutation}, {"all_to_all", am::sim::Pattern::all_to_all}};

struct Samples {
  std::vector<double> goodput, p99, fairness;
};

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

}  // namespace

void add_traffic(Paths& paths) {
  for (const SimulatedNetwork& network : kNetworks) {
    paths.push_back(std::make_unique<PathWithoutSession>(PathInfo{
        .name = network.name,
        .kind = Kind::ours,
        .what = std::string("Active Messages' flows over a simulated network: ") + network.what,
        .setting = "100 Gbit/s links of 2 us, requests of 4 KiB at random times, flows keep to one way (ECMP), no congestion marks",
        .only = {"am-traffic"}}));
  }
}

Records measure_traffic(const Benchmark& benchmark, const std::vector<PathInfo>& paths, const std::vector<uint32_t>& sizes,
                        const MeasureOptions& options) {
  std::vector<Record> records;
  for (const uint32_t nodes : sizes) {
    std::fprintf(stderr, "unet-bench: simulating %u nodes\n", nodes);
    for (const PathInfo& path : paths) {
      const auto network = std::find_if(std::begin(kNetworks), std::end(kNetworks), [&](const SimulatedNetwork& each) {
        return each.name == path.name;
      });
      for (const NamedPattern& pattern : kPatterns) {
        for (const uint32_t load : kLoads) {
          Samples samples;
          for (uint32_t seed = 1; seed <= options.repeat; ++seed) {
            const am::sim::TrafficResult result = am::sim::simulate(
                {.pattern = pattern.pattern, .nodes = nodes, .load = load / 100.0, .tree = network->tree}, seed);
            samples.goodput.push_back(result.goodput * kLink);
            samples.p99.push_back(static_cast<double>(result.p99));
            samples.fairness.push_back(result.fairness);
          }
          add_records(records, record_without_figures(benchmark, path, nodes, options),
                      std::string("_") + pattern.name + "_load_" + std::to_string(load) + "%", samples);
        }
      }
    }
  }
  return records;
}

}  // namespace unet::bench
