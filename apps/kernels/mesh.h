// mesh.h - a square mesh in which each edge exists with some probability, and its components as one process finds them; used by components.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "apps/kernels/random.h"

namespace unet::kernels {

struct MeshOptions {
  uint32_t side = 2048;   // vertices
  double edges = 0.4;     // probability of an edge
};
constexpr uint32_t kMeshSideMax = 32768;   // a vertex number has 32 bits

class Mesh {
 public:
  Mesh(const MeshOptions& options, uint64_t seed) noexcept : side_(options.side), edges_(options.edges), seed_(seed) {}

  uint32_t side() const noexcept { return side_; }
  // Vertices are numbered row by row.
  uint32_t vertices() const noexcept { return side_ * side_; }
  // Return whether there is an edge to the vertex on the right, or below.
  bool has_right(uint32_t vertex) const noexcept { return vertex % side_ + 1 < side_ && random_unit(seed_, uint64_t{2} * vertex) < edges_; }
  bool has_below(uint32_t vertex) const noexcept {
    return vertex < vertices() - side_ && random_unit(seed_, uint64_t{2} * vertex + 1) < edges_;
  }

 private:
  uint32_t side_;
  double edges_;
  uint64_t seed_;
};

// Trees. The root is the least vertex of its component: a parent is never greater than its child. `parents` belong to the vertices
// from `first` on; all paths stay among those.
class Trees {
 public:
  Trees(uint32_t* parents, uint32_t first) noexcept : parents_(parents), first_(first) {}

  uint32_t root(uint32_t vertex) noexcept {
    for (uint32_t parent = of(vertex); parent != vertex; parent = of(vertex)) vertex = of(vertex) = of(parent);
    return vertex;
  }
  void merge(uint32_t a, uint32_t b) noexcept {
    a = root(a);
    b = root(b);
    if (a < b) of(b) = a;
    if (b < a) of(a) = b;
  }

 private:
  uint32_t& of(uint32_t vertex) noexcept { return parents_[vertex - first_]; }
  uint32_t* parents_;
  uint32_t first_;
};

// Labels rows [first, last): every vertex gets the least vertex of its component among these rows. Calls `now_and_then()` after each row.
template <typename NowAndThen>
void label_rows(const Mesh& mesh, uint32_t* labels, uint32_t first, uint32_t last, const NowAndThen& now_and_then) {
  const uint32_t side = mesh.side(), begin = first * side;
  Trees trees(labels, begin);
  std::iota(labels, labels + uint64_t{last - first} * side, begin);
  for (uint32_t row = first; row < last; ++row) {
    for (uint32_t vertex = row * side; vertex < (row + 1) * side; ++vertex) {
      if (mesh.has_right(vertex)) trees.merge(vertex, vertex + 1);
      if (row + 1 < last && mesh.has_below(vertex)) trees.merge(vertex, vertex + side);
    }
    now_and_then();
  }
  // A parent comes before its children.
  for (uint64_t i = 0; i < uint64_t{last - first} * side; ++i) labels[i] = labels[labels[i] - begin];
}

}  // namespace unet::kernels
