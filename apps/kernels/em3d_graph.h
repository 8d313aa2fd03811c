// em3d_graph.h - the graph of em3d: electric and magnetic nodes, each of which depends on some of the other kind; used by em3d.
//
// The options determine the graph, so every rank knows all of it: which values it needs, and which ranks need its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "apps/kernels/random.h"

namespace unet::kernels {

struct Em3dOptions {
  uint32_t nodes = 500;     // of each kind at each rank
  uint32_t degree = 20;     // nodes on which a node depends
  uint32_t remote = 40;     // percent of them at other ranks
  uint32_t steps = 100;
};

enum class Kind : uint32_t { electric, magnetic };
constexpr Kind other(Kind kind) noexcept { return kind == Kind::electric ? Kind::magnetic : Kind::electric; }

// A node's number among its kind: first those of rank 0, then those of rank 1, and so on.
using NodeNumber = uint32_t;

class Em3dGraph {
 public:
  Em3dGraph(const Em3dOptions& options, uint32_t ranks, uint64_t seed) noexcept : options_(options), ranks_(ranks), seed_(seed) {}

  const Em3dOptions& options() const noexcept { return options_; }
  uint32_t ranks() const noexcept { return ranks_; }
  NodeNumber first(uint32_t rank) const noexcept { return rank * options_.nodes; }
  uint32_t owner(NodeNumber node) const noexcept { return node / options_.nodes; }
  NodeNumber nodes() const noexcept { return ranks_ * options_.nodes; }

  double start_value(Kind kind, NodeNumber node) const noexcept { return random_unit(seed_ + 2 + static_cast<uint64_t>(kind), node); }
  // Returns the node of the other kind at which edge number `edge` of `node` starts.
  NodeNumber source(Kind kind, NodeNumber node, uint32_t edge) const noexcept {
    const uint64_t bits = random_bits(seed_ + static_cast<uint64_t>(kind), uint64_t{node} * options_.degree + edge);
    uint32_t rank = owner(node);
    if (ranks_ > 1 && bits % 100 < options_.remote) rank = (rank + 1 + static_cast<uint32_t>((bits >> 40) % (ranks_ - 1))) % ranks_;
    return first(rank) + static_cast<NodeNumber>((bits >> 8 & 0xFFFFFFFF) % options_.nodes);
  }
  // Returns the edge's weight, which is small enough that values stay bounded.
  double weight(Kind kind, NodeNumber node, uint32_t edge) const noexcept {
    return (random_unit(seed_ + 4 + static_cast<uint64_t>(kind), uint64_t{node} * options_.degree + edge) - 0.5) / options_.degree;
  }

  // Returns the nodes of other ranks on which the nodes of `kind` of `rank` depend, each once, in order.
  std::vector<NodeNumber> ghosts(Kind kind, uint32_t rank) const {
    std::vector<NodeNumber> all;
    for (NodeNumber node = first(rank); node < first(rank + 1); ++node) {
      for (uint32_t edge = 0; edge < options_.degree; ++edge) {
        const NodeNumber from = source(kind, node, edge);
        if (owner(from) != rank) all.push_back(from);
      }
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

 private:
  Em3dOptions options_;
  uint32_t ranks_;
  uint64_t seed_;
};

}  // namespace unet::kernels
