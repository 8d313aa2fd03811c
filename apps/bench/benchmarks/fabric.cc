// fabric.cc - the rows of fabric: each operation by each provider, beside the limit of its kind.
#include "apps/bench/workloads/fabric.h"

#include "apps/bench/benchmarks/methods.h"
#include "apps/bench/benchmarks/rows.h"

namespace unet::bench {

namespace {

constexpr uint32_t kFabricWord = 8, kLeastBlock = 4096;  // bytes
constexpr double kRowsOfSize = 4;  // of each path

struct FabricRow {
  const char* metric;
  const char* unit;
  Workload workload;
  uint32_t operation;
  const char* limit;  // nullptr: the benchmark's
  Workload of_limit;
  Relation relation = Relation::over;
};
constexpr FabricRow kTaggedRow{"tagged", "ns", Workload::rtt, kFabricMessages, nullptr, Workload::rtt};
constexpr FabricRow kOfWords[] = {
    {"rate", "msg/s", Workload::rate, kFabricMessages, "limit-pingpong", Workload::rtt, Relation::product},
    {"fetch_add", "ns", Workload::rtt, kFabricAtomics, "limit-pingpong", Workload::rtt},
    {"add_rate", "msg/s", Workload::rate, kFabricAtomics, "limit-pingpong", Workload::rtt, Relation::product},
};
constexpr FabricRow kOfBlocks[] = {
    {"bandwidth", "GB/s", Workload::bandwidth, kFabricMessages, "limit-memcpy", Workload::bandwidth},
    {"put", "GB/s", Workload::put, kFabricMessages, "limit-put", Workload::put},
    {"get", "GB/s", Workload::get, kFabricMessages, "limit-get", Workload::get},
};

}  // namespace

Records measure_fabric(Session& session, const Benchmark& benchmark, uint32_t size, const PathIndices& paths,
                       const MeasureOptions& options) {
  std::vector<RowSpec> rows;
  for (const size_t index : paths) {
    const PathInfo& info = session.path(index).info();
    const auto add = [&](const FabricRow& row) {
      rows.push_back({.metric = row.metric,
                      .unit = row.unit,
                      .own = {.path = info.name, .workload = row.workload, .size = size, .condition = row.operation},
                      .limit = {.path = row.limit != nullptr ? row.limit : benchmark.limit_path(size),
                                .workload = row.of_limit,
                                .size = size},
                      .relation = row.relation});
    };
    if (size <= kMessageMax) add(kTaggedRow);  // its limit has no longer ones
    for (const FabricRow& row : kOfWords) {
      if (size == kFabricWord) add(row);
    }
    for (const FabricRow& row : kOfBlocks) {
      if (size >= kLeastBlock) add(row);
    }
  }
  return measure_rows(session, benchmark, rows, kRowsOfSize, options);
}

}  // namespace unet::bench
