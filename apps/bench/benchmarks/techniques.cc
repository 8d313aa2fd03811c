// techniques.cc - the rows of ipc-techniques: a way that lacks one technique, beside the way that has it.
#include "apps/bench/workloads/techniques.h"

#include "apps/bench/benchmarks/methods.h"
#include "apps/bench/benchmarks/rows.h"

namespace unet::bench {

namespace {

struct Technique {
  const char* metric;    // what there is without it
  const char* baseline;  // its name
  Way without, with;
  bool is_for_lines = false;  // messages that fit into a slot
  bool is_of_one_core = false;
};
constexpr Technique kTechniques[] = {
    {"buffer", "line", Way::buffer, Way::line, true, false},
    {"several_sends", "gather", Way::several, Way::gathered, false, false},
    {"two_copies", "direct", Way::copied, Way::in_place, false, false},
    {"four_crossings", "two_crossings", Way::sleeps, Way::yields, false, true},
    {"scheduler", "hand_off", Way::spins, Way::sleeps, false, true},
};

}  // namespace

Records measure_techniques(Session& session, const Benchmark& benchmark, uint32_t size, const PathIndices& paths,
                           const MeasureOptions& options) {
  std::vector<RowSpec> rows;
  for (const size_t index : paths) {
    const std::string& path = session.path(index).info().name;
    for (const Technique& technique : kTechniques) {
      if (technique.is_of_one_core != session.path(index).info().shares_cores) continue;
      if (technique.is_for_lines && size > kInlineMax) continue;
      const auto slices_of = [&](Way way) {
        return RowSlices{.path = path, .workload = Workload::technique, .size = size, .condition = static_cast<uint32_t>(way)};
      };
      rows.push_back({.metric = technique.metric,
                      .unit = "ns",
                      .own = slices_of(technique.without),
                      .limit = slices_of(technique.with),
                      .baseline = technique.baseline});
    }
  }
  return measure_rows(session, benchmark, rows, 1, options);
}

}  // namespace unet::bench
