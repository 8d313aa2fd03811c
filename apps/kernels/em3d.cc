// em3d.cc - kernel_em3d: electromagnetic waves on an irregular graph, by the optimisations of the Split-C tutorial, step by step.
//
//   unet-run -n 4 -- kernel_em3d --how read      a blocking read per edge
//   unet-run -n 4 -- kernel_em3d --how ghost     each remote value is read once per step
//   unet-run -n 4 -- kernel_em3d --how get       the same, but all reads are in flight at once
//   unet-run -n 4 -- kernel_em3d --how store     owners store values where they are needed: one way, half of the messages
//   unet-run -n 4 -- kernel_em3d --how bulk      one message from each rank to each other
//
// In a step each electric node changes by a weighted sum of the magnetic nodes on which it depends. Then the magnetic nodes change likewise
// (Culler, Dusseau, Goldstein, Krishnamurthy, Lumetta, von Eicken and Yelick 1993).
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "am/splitc/splitc.h"
#include "apps/kernels/em3d_graph.h"
#include "apps/kernels/kernel.h"

namespace unet::kernels {
namespace {

namespace sc = unet::splitc;

enum class How : uint8_t { read, ghost, get, store, bulk };

// Values of this rank that another rank needs, and their place there.
struct Needed {
  std::vector<uint32_t> nodes;          // indices of this rank's nodes, from 0
  sc::Global<double> ghosts;
  std::vector<double> values;           // gathered, to send them together
};

// This rank's nodes of one kind, with the data to compute them.
class Side {
 public:
  Side(const Em3dGraph& graph, Kind kind, sc::Spread<double> values, sc::Spread<double> sources)
      : graph_(graph), kind_(kind), me_(sc::my_proc()), ghosts_(graph.ghosts(kind, me_)), values_(values), sources_(sources),
        ghost_values_(sc::all_spread_malloc<double>(sc::procs(), most_ghosts())) {
    find_edges();
    for (sc::Rank rank = 0; rank < sc::procs(); ++rank) {
      if (rank != me_) find_needed_by(rank);
    }
  }
  ~Side() { sc::all_spread_free(ghost_values_); }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void begin() {
    const NodeNumber first = graph_.first(me_);
    for (uint32_t i = 0; i < nodes(); ++i) own()[i] = graph_.start_value(kind_, first + i);
  }

  // Brings the current values of the sources. They do not change before all ranks have taken part in the next call.
  void bring_sources(How how) {
    if (how == How::store || how == How::bulk) {
      if (how == How::store) store_values();
      if (how == How::bulk) store_together();
      sc::all_store_sync();
      return;
    }
    sc::barrier();
    if (how == How::ghost) read_ghosts();
    if (how == How::get) get_ghosts();
  }

  void compute() {
    const double* weight = weights_.data();
    const double* const* source = places_.data();
    for (uint32_t i = 0; i < nodes(); ++i) {
      double value = own()[i];
      for (uint32_t edge = 0; edge < graph_.options().degree; ++edge) value -= *weight++ * **source++;
      own()[i] = value;
      if (i % kNodesBetween == 0) sc::poll();
    }
  }

  // Computes with a read for each edge, whether its source is remote or not.
  void compute_by_reads() {
    const double* weight = weights_.data();
    const sc::Global<double>* source = globals_.data();
    for (uint32_t i = 0; i < nodes(); ++i) {
      double value = own()[i];
      for (uint32_t edge = 0; edge < graph_.options().degree; ++edge) value -= *weight++ * sc::read(*source++);
      own()[i] = value;
    }
  }

  uint64_t count_wrong(const std::vector<double>& serial) const {
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < nodes(); ++i) wrong += own()[i] != serial[graph_.first(me_) + i] ? 1 : 0;
    return wrong;
  }

 private:
  static constexpr uint32_t kNodesBetween = 256;   // nodes between two polls

  uint32_t nodes() const noexcept { return graph_.options().nodes; }
  double* own() const { return values_.mine(0).data(); }
  double* ghost(size_t i) const { return ghost_values_.mine(0).data() + i; }
  sc::Global<double> global(NodeNumber source) const {
    const sc::Rank rank = graph_.owner(source);
    return sources_.on(rank) + (source - graph_.first(rank));
  }

  // Collective: the greatest number of ghosts, because every rank allocates the same.
  uint64_t most_ghosts() const { return sc::all_reduce_max(uint64_t{ghosts_.size()}) + 1; }

  void find_edges() {
    const NodeNumber first = graph_.first(me_);
    for (NodeNumber node = first; node < first + nodes(); ++node) {
      for (uint32_t edge = 0; edge < graph_.options().degree; ++edge) {
        const NodeNumber source = graph_.source(kind_, node, edge);
        weights_.push_back(graph_.weight(kind_, node, edge));
        globals_.push_back(global(source));
        const auto at = static_cast<size_t>(std::lower_bound(ghosts_.begin(), ghosts_.end(), source) - ghosts_.begin());
        places_.push_back(graph_.owner(source) == me_ ? sources_.mine(0).data() + (source - first) : ghost(at));
      }
    }
  }

  // The ghosts of a rank are in order, so those owned by this rank are contiguous.
  void find_needed_by(sc::Rank rank) {
    const std::vector<NodeNumber> theirs = graph_.ghosts(kind_, rank);
    const NodeNumber first = graph_.first(me_);
    const auto begin = std::lower_bound(theirs.begin(), theirs.end(), first);
    const auto end = std::lower_bound(begin, theirs.end(), first + nodes());
    if (begin == end) return;
    Needed needed;
    needed.ghosts = ghost_values_.on(rank) + (begin - theirs.begin());
    for (auto at = begin; at != end; ++at) needed.nodes.push_back(*at - first);
    needed.values.resize(needed.nodes.size());
    needed_.push_back(std::move(needed));
  }

  void read_ghosts() {
    for (size_t i = 0; i < ghosts_.size(); ++i) *ghost(i) = sc::read(global(ghosts_[i]));
  }
  void get_ghosts() {
    for (size_t i = 0; i < ghosts_.size(); ++i) sc::get(*ghost(i), global(ghosts_[i]));
    sc::sync();
  }
  void store_values() {
    const double* const sources = sources_.mine(0).data();
    for (const Needed& needed : needed_) {
      sc::Global<double> to = needed.ghosts;
      for (const uint32_t node : needed.nodes) sc::store(to++, sources[node]);
    }
  }
  void store_together() {
    const double* const sources = sources_.mine(0).data();
    for (Needed& needed : needed_) {
      for (size_t i = 0; i < needed.nodes.size(); ++i) needed.values[i] = sources[needed.nodes[i]];
      sc::bulk_store(needed.ghosts, needed.values.data(), needed.values.size());
    }
  }

  const Em3dGraph& graph_;
  const Kind kind_;
  const sc::Rank me_;
  const std::vector<NodeNumber> ghosts_;          // remote nodes on which the nodes here depend
  const sc::Spread<double> values_, sources_;     // values of this kind, and of the other
  const sc::Spread<double> ghost_values_;
  std::vector<double> weights_;                   // edge by edge, node by node
  std::vector<const double*> places_;             // likewise: where this rank has the source's value
  std::vector<sc::Global<double>> globals_;       // likewise: where the owner has it
  std::vector<Needed> needed_;                    // this rank's sources that others need
};

class Em3d {
 public:
  Em3d(const Em3dOptions& options, How how, uint64_t seed)
      : graph_(options, sc::procs(), seed), how_(how), values_{make(), make()}, electric_(graph_, Kind::electric, values_[0], values_[1]),
        magnetic_(graph_, Kind::magnetic, values_[1], values_[0]) {}

  void begin() {
    electric_.begin();
    magnetic_.begin();
  }

  void run(TimeSplit& time) {
    for (uint32_t step = 0; step < graph_.options().steps; ++step) {
      advance(electric_, time);
      advance(magnetic_, time);
    }
  }

  // Compares bit by bit: each node adds up its edges in the same order in a serial run.
  uint64_t count_wrong() const {
    std::array<std::vector<double>, 2> values;
    for (const Kind kind : {Kind::electric, Kind::magnetic}) {
      for (NodeNumber node = 0; node < graph_.nodes(); ++node) values[static_cast<size_t>(kind)].push_back(graph_.start_value(kind, node));
    }
    for (uint32_t step = 0; step < graph_.options().steps; ++step) {
      for (const Kind kind : {Kind::electric, Kind::magnetic}) {
        advance_serially(kind, values[static_cast<size_t>(kind)], values[static_cast<size_t>(other(kind))]);
      }
    }
    return electric_.count_wrong(values[0]) + magnetic_.count_wrong(values[1]);
  }

 private:
  sc::Spread<double> make() const { return sc::all_spread_malloc<double>(sc::procs(), graph_.options().nodes); }

  void advance(Side& side, TimeSplit& time) {
    time.enter(Part::communication);
    side.bring_sources(how_);
    if (how_ == How::read) return side.compute_by_reads();
    time.enter(Part::computation);
    side.compute();
  }

  void advance_serially(Kind kind, std::vector<double>& values, const std::vector<double>& sources) const {
    for (NodeNumber node = 0; node < graph_.nodes(); ++node) {
      for (uint32_t edge = 0; edge < graph_.options().degree; ++edge) {
        values[node] -= graph_.weight(kind, node, edge) * sources[graph_.source(kind, node, edge)];
      }
    }
  }

  const Em3dGraph graph_;
  const How how_;
  const std::array<sc::Spread<double>, 2> values_;   // by kind; never freed before the job ends
  Side electric_, magnetic_;
};

int program(int argc, char** argv) {
  const std::vector<std::string> ladder{"read", "ghost", "get", "store", "bulk"};
  Em3dOptions options;
  std::string how = "bulk";
  CommandLine line("kernel_em3d - electromagnetic waves on a graph in Split-C: start it by unet-run -n P -- kernel_em3d",
                   "Climb the ladder of the Split-C tutorial, and watch the time for communication:\n"
                   "  read   a blocking read per edge, wherever it leads\n"
                   "  ghost  a blocking read per remote node, into a copy that its edges share\n"
                   "  get    the same reads split-phase: all are on their way at once, and sync() waits for the last\n"
                   "  store  owners store values into the copies: one way, and all_store_sync() in place of sync() and barrier()\n"
                   "  bulk   owners put the values of a rank together: one bulk_store to each\n"
                   "Each step up needs more knowledge of who needs what, and fewer or cheaper messages.");
  line.choice("--how", how, ladder, "values of other ranks are reached");
  line.number("--nodes", options.nodes, 1, 1u << 20, "electric ones, and as many magnetic ones, of each rank");
  line.number("--degree", options.degree, 1, 1000, "nodes that each depends on");
  line.number("--remote", options.remote, 0, 100, "percent of them that are another rank's");
  line.number("--steps", options.steps, 1, 1u << 20, "in time");
  const Parsed parsed = parse(line, argc, argv);
  if (!parsed.options) return parsed.status;

  const auto rung = static_cast<How>(std::find(ladder.begin(), ladder.end(), how) - ladder.begin());
  Em3d em3d(options, rung, parsed.options->seed);
  Measurement result{.kernel = "em3d " + how, .size = std::to_string(options.nodes) + " nodes of each kind per rank"};
  result.operations = 2.0 * options.nodes * options.degree * sc::procs() * options.steps;
  result.operation = "edges";
  const Work work{.begin = [&] { em3d.begin(); },
                  .run = [&](TimeSplit& time) { em3d.run(time); },
                  .count_wrong = [&] { return em3d.count_wrong(); }};
  measure_best(*parsed.options, work, result);
  return report(*parsed.options, result);
}

}  // namespace
}  // namespace unet::kernels

int main(int argc, char** argv) { return unet::splitc::run(argc, argv, unet::kernels::program); }
