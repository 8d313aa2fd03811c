// sim_traffic.h - Active Messages' flows between the nodes of a simulated network, for patterns of traffic; for tests and the benchmark
// am-traffic.
#pragma once

#include "am/sim_fabric.h"
#include "unet/base/sim_traffic.h"

namespace unet::am::sim {

// A network for run_traffic(). Requests have no replies. Windows follow delay: flows take no notice of marked packets.
class TrafficNetwork : public Network {
 public:
  TrafficNetwork(const Traffic& traffic, uint64_t seed) : Network(traffic.nodes, traffic.wire(), seed, traffic.tree), traffic_(traffic) {
    options_.congestion.base_delay = 2 * traffic.least_delay();
  }

  const Traffic& traffic() const noexcept { return traffic_; }
  void open(uint32_t from, uint32_t to) {
    const size_t flow = connect(from, to, options_, options_);
    side(flow, 0).bytes = traffic_.bytes;
    side(flow, 1).replies = 0;
    side(flow, 0).eager = side(flow, 1).eager = true;
  }
  void request(size_t flow) {
    ++side(flow, 0).wanted;
    side(flow, 0).process_now();
  }
  std::vector<Nanoseconds>& due(size_t flow) { return side(flow, 0).due; }
  const std::vector<Nanoseconds>& latencies(size_t flow) { return side(flow, 1).latencies; }
  uint64_t bytes(size_t flow) { return side(flow, 1).bytes_handled; }

 private:
  const Traffic traffic_;
  FlowOptions options_;
};

}  // namespace unet::am::sim
