// components.cc - kernel_components: the connected components of a mesh, as in the U-Net paper. Most of its messages are small.
//
//   unet-run -n 4 -- kernel_components                 2048 x 2048 vertices, 40 % of the edges
//   unet-run -n 4 -- kernel_components --edges 0.5     where components are largest and strangest
//
// After Krishnamurthy, Lumetta, Culler and Yelick (1997). Each rank finds the components of its strip of the mesh. For an edge between two
// strips, the upper rank merges the two trees. By blocking reads it follows parents from rank to rank up to both roots. Then it makes the
// lesser root the parent of the other by one compare_exchange; if another rank was faster, it continues from there. A root only ever gets a
// lesser parent, so there is no cycle, and the last root of a component is its least vertex.
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "am/splitc/splitc.h"
#include "apps/kernels/kernel.h"
#include "apps/kernels/mesh.h"
#include "apps/kernels/partition.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

class Components {
 public:
  Components(const MeshOptions& options, uint64_t seed)
      : mesh_(options, seed), strips_(options.side, sc::procs()), first_row_(static_cast<uint32_t>(strips_.begin(sc::my_proc()))),
        last_row_(static_cast<uint32_t>(strips_.end(sc::my_proc()))),
        parents_(sc::all_spread_malloc<uint32_t>(sc::procs(), strips_.size_max() * options.side)), own_(parents_.mine(0).data()) {}
  ~Components() { sc::all_spread_free(parents_); }
  Components(const Components&) = delete;
  Components& operator=(const Components&) = delete;

  void run(TimeSplit& time) {
    label_rows(mesh_, own_, first_row_, last_row_, [] { sc::poll(); });
    time.enter(Part::communication);
    sc::barrier();
    merge_strips();
    sc::barrier();
    time.enter(Part::computation);
    finish_labels();
  }

  // Collective: counts the components of the whole mesh.
  uint64_t count() const {
    uint64_t roots = 0;
    for (uint64_t i = 0; i < vertices(); ++i) roots += own_[i] == first() + i ? 1 : 0;
    return sc::all_reduce_add(roots);
  }

  uint64_t count_wrong() const {
    std::vector<uint32_t> all(mesh_.vertices());
    label_rows(mesh_, all.data(), 0, mesh_.side(), [] {});
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < vertices(); ++i) wrong += own_[i] != all[first() + i] ? 1 : 0;
    return wrong;
  }

 private:
  uint64_t first() const noexcept { return uint64_t{first_row_} * mesh_.side(); }
  uint64_t vertices() const noexcept { return uint64_t{last_row_ - first_row_} * mesh_.side(); }

  sc::Global<uint32_t> parent(uint32_t vertex) const {
    const uint64_t row = vertex / mesh_.side();
    const sc::Rank rank = strips_.owner(row);
    return parents_.on(rank) + static_cast<int64_t>(vertex - strips_.begin(rank) * mesh_.side());
  }

  // Merges trees across the edges to the next strip. Skips an edge beside another one that joined the same two trees.
  void merge_strips() {
    if (last_row_ == mesh_.side()) return;
    uint32_t last_above = ~0u, last_below = ~0u;
    for (uint32_t above = (last_row_ - 1) * mesh_.side(); above < last_row_ * mesh_.side(); ++above) {
      if (!mesh_.has_below(above)) continue;
      const uint32_t parent_above = sc::read(parent(above)), parent_below = sc::read(parent(above + mesh_.side()));
      if (parent_above == last_above && parent_below == last_below) continue;
      merge(parent_above, parent_below);
      last_above = parent_above;
      last_below = parent_below;
    }
  }

  void merge(uint32_t a, uint32_t b) {
    while (true) {
      a = root(a);
      b = root(b);
      if (a == b) return;
      if (a < b) std::swap(a, b);
      if (sc::compare_exchange(parent(a), a, b) == a) return;
    }
  }

  // A walk over several parents shortens the path for later ones. This is safe: any ancestor may be the parent of a vertex that is no root.
  uint32_t root(uint32_t vertex) {
    uint32_t at = vertex, steps = 0;
    for (uint32_t next = sc::read(parent(at)); next != at; next = sc::read(parent(at))) {
      at = next;
      ++steps;
    }
    if (steps > 1) sc::write(parent(vertex), at);
    return at;
  }

  // Replaces parents by roots, which no longer change. If the parent is in this strip, the vertex takes its label, which is final already.
  void finish_labels() {
    for (uint64_t i = 0; i < vertices(); ++i) {
      if (i % mesh_.side() == 0) sc::poll();
      const std::atomic_ref<uint32_t> own(own_[i]);   // other ranks may be reading it on their way to a root
      const uint32_t parent = own.load(std::memory_order_relaxed);
      if (parent == first() + i) continue;
      own.store(parent < first() ? root(parent) : std::atomic_ref(own_[parent - first()]).load(std::memory_order_relaxed),
                std::memory_order_relaxed);
    }
  }

  const Mesh mesh_;
  const Partition strips_;                 // of the mesh's rows
  const uint32_t first_row_, last_row_;
  const sc::Spread<uint32_t> parents_;     // of all vertices; a root is its own parent
  uint32_t* const own_;
};

int program(int argc, char** argv) {
  MeshOptions options;
  CommandLine line("kernel_components - connected components in Split-C: start it by unet-run -n P -- kernel_components",
                   "Each rank finds the components of its strip of a mesh alone. Where an edge joins two strips, their trees are merged\n"
                   "by blocking reads of parents, which may lie at any rank, and a compare_exchange of a root: small messages that each\n"
                   "wait for the one before. At half of the edges a mesh is about to become one component, and trees reach furthest.");
  line.number("--side", options.side, 1, kMeshSideMax, "vertices on a side of the mesh");
  line.number("--edges", options.edges, 0, 1, "part of the edges that are there");
  const Parsed parsed = parse(line, argc, argv);
  if (!parsed.options) return parsed.status;
  if (options.side < sc::procs()) return refuse(argv[0], "--side: each rank needs a row");

  Components components(options, parsed.options->seed);
  const std::string side = std::to_string(options.side);
  Measurement result{.kernel = "components", .size = side + "x" + side + " vertices"};
  result.operations = static_cast<double>(options.side) * options.side;
  result.operation = "vertices";
  const Work work{.begin = [] {},
                  .run = [&](TimeSplit& time) { components.run(time); },
                  .count_wrong = [&] { return components.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  result.facts = {{"components", static_cast<double>(components.count())}};
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
