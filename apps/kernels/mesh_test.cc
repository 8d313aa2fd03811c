// mesh_test.cc - compares components of small meshes with labels that spread until nothing changes.
#include "apps/kernels/mesh.h"

#include <catch2/catch.hpp>

namespace unet::kernels::mesh_test {
namespace {

std::vector<uint32_t> spread_labels(const Mesh& mesh) {
  std::vector<uint32_t> labels(mesh.vertices());
  std::iota(labels.begin(), labels.end(), 0u);
  for (bool changed = true; changed;) {
    changed = false;
    const auto join = [&](uint32_t a, uint32_t b) {
      changed |= labels[a] != labels[b];
      labels[a] = labels[b] = labels[a] < labels[b] ? labels[a] : labels[b];
    };
    for (uint32_t vertex = 0; vertex < mesh.vertices(); ++vertex) {
      if (mesh.has_right(vertex)) join(vertex, vertex + 1);
      if (mesh.has_below(vertex)) join(vertex, vertex + mesh.side());
    }
  }
  return labels;
}

TEST_CASE("each vertex has its component's least one") {
  for (const uint32_t side : {1u, 2u, 7u, 20u}) {
    for (const double edges : {0.0, 0.3, 0.5, 0.7, 1.0}) {
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        const Mesh mesh({side, edges}, seed);
        std::vector<uint32_t> labels(mesh.vertices());
        label_rows(mesh, labels.data(), 0, side, [] {});
        REQUIRE(labels == spread_labels(mesh));
      }
    }
  }
}

TEST_CASE("rows alone know nothing of the others") {
  const Mesh mesh({10, 1.0}, 1);
  std::vector<uint32_t> labels(30);
  label_rows(mesh, labels.data(), 4, 7, [] {});
  for (const uint32_t label : labels) REQUIRE(label == 40);
}

}  // namespace
}  // namespace unet::kernels::mesh_test
