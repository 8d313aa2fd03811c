// sim_switches.h - nodes of a simulation that one switch or a fat tree joins; for tests and benchmarks of every layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "unet/base/simulator.h"

namespace unet {

// A fat tree with two levels. Each leaf has a link to each spine, and a flow keeps to one random spine (ECMP).
struct SimTree {
  uint32_t leaf = 0;                   // nodes of a leaf; 0: one switch joins all nodes
  uint32_t spines = 1;                 // fewer than `leaf`: the links between switches are oversubscribed
  uint64_t buffer = 0;                 // bytes that the ports of a switch share: each may have as many as are free
};

// Each node has one link to a switch, and may queue any number of bytes before it. The way through two links has the delay of `wire`. Its
// faults, queue and marks are those of each port of a switch.
class SimSwitches {
 public:
  SimSwitches(Simulator& simulator, uint32_t nodes, const SimLinkOptions& wire, const SimTree& tree) : simulator_(simulator), tree_(tree) {
    SimLinkOptions down = wire;
    down.delay /= 2;
    up_.assign(nodes, SimLink(simulator, {.delay = down.delay, .bits_per_second = wire.bits_per_second}));
    down_.assign(nodes, SimLink(simulator, down));
    if (tree_.leaf != 0) plant(nodes, down);
  }
  SimSwitches(const SimSwitches&) = delete;
  SimSwitches& operator=(const SimSwitches&) = delete;

  // Chooses the spine of a flow at random: flows may collide on a link.
  uint32_t draw_spine() { return tree_.leaf == 0 ? 0 : static_cast<uint32_t>(simulator_.below(tree_.spines)); }
  // Sends a packet from node `a` to node `b`. Calls `arrive(marked)` for each copy that arrives.
  template <typename Arrive>
  void send(uint32_t a, uint32_t b, uint32_t spine, uint32_t bytes, Arrive arrive) {
    const Nanoseconds at_switch = up_[a].transmit(simulator_.now(), bytes) + up_[a].options.delay;
    if (tree_.leaf == 0) {
      down_[b].send(at_switch, bytes, std::move(arrive));
      return;
    }
    simulator_.at(at_switch, [this, a, b, spine, bytes, arrive = std::move(arrive)]() mutable {
      climb(a / tree_.leaf, b, spine, bytes, std::move(arrive));
    });
  }
  uint64_t queue_drops() const noexcept {
    uint64_t lost = 0;
    for (const auto* links : {&down_, &to_spine_, &from_spine_}) {
      for (const SimLink& link : *links) lost += link.queue_drops();
    }
    return lost;
  }

 private:
  // Makes the links between switches, and lists the ports of each switch: of leaves, then of spines.
  void plant(uint32_t nodes, const SimLinkOptions& link) {
    leaves_ = (nodes + tree_.leaf - 1) / tree_.leaf;
    to_spine_.assign(size_t{leaves_} * tree_.spines, SimLink(simulator_, link));
    from_spine_ = to_spine_;
    ports_.resize(leaves_ + tree_.spines);
    for (uint32_t node = 0; node < nodes; ++node) ports_[node / tree_.leaf].push_back(&down_[node]);
    for (uint32_t i = 0; i < to_spine_.size(); ++i) {
      ports_[i / tree_.spines].push_back(&to_spine_[i]);
      ports_[leaves_ + i % tree_.spines].push_back(&from_spine_[i]);
    }
  }
  // Sends a packet from leaf `from` to node `b`.
  template <typename Arrive>
  void climb(uint32_t from, uint32_t b, uint32_t spine, uint32_t bytes, Arrive arrive) {
    const uint32_t last = b / tree_.leaf;
    if (from == last) return pass(last, down_[b], bytes, std::move(arrive));
    SimLink &up = to_spine_[from * tree_.spines + spine], &down = from_spine_[last * tree_.spines + spine];
    pass(from, up, bytes, [this, last, b, spine, bytes, &down, arrive = std::move(arrive)](bool first) mutable {
      pass(leaves_ + spine, down, bytes, [this, last, b, bytes, first, arrive = std::move(arrive)](bool second) mutable {
        const bool before = first || second;
        pass(last, down_[b], bytes, [before, arrive = std::move(arrive)](bool third) mutable { arrive(before || third); });
      });
    });
  }
  // Sends a packet through a port of a switch.
  template <typename Arrive>
  void pass(size_t at_switch, SimLink& link, uint32_t bytes, Arrive arrive) {
    if (tree_.buffer != 0) {
      double used = 0;
      for (const SimLink* port : ports_[at_switch]) used += port->waiting(simulator_.now());
      link.options.queue = static_cast<uint64_t>(std::max(1.0, static_cast<double>(tree_.buffer) - used));
    }
    link.send(simulator_.now(), bytes, std::move(arrive));
  }

  Simulator& simulator_;
  SimTree tree_;
  uint32_t leaves_ = 0;
  std::vector<SimLink> up_, down_, to_spine_, from_spine_;  // between switches: by leaf, then by spine
  std::vector<std::vector<SimLink*>> ports_;                // of each switch
};

}  // namespace unet
