// rpc.cc - the rows of rpc: each call on each path, beside the least that it can be; and ours beside other things of the same run.
#include "apps/bench/benchmarks/methods.h"
#include "apps/bench/benchmarks/rows.h"
#include "apps/bench/workloads/calls.h"

namespace unet::bench {

namespace {

constexpr const Call& kNull = kCalls[0];
constexpr const Call& kBigInOut = kCalls[3];
static_assert(kNull.procedure == Procedure::null && kBigInOut.procedure == Procedure::in_out);
constexpr uint32_t kAmSize = 8;  // of a short Active Message beside a null call

RowSlices slices_of(const std::string& path, const Call& call) {
  return {.path = path, .workload = Workload::call, .size = call.size, .condition = static_cast<uint32_t>(call.procedure)};
}

RowSpec row_of(const std::string& path, const Call& call, RowSlices limit, std::string baseline = "") {
  return {.metric = call.metric, .unit = "ns", .own = slices_of(path, call), .limit = std::move(limit), .baseline = std::move(baseline)};
}

bool is_there(const Session& session, const std::string& path) {
  const size_t index = find_path(session, path);
  return index != session.path_count() && session.refusal(index).empty();
}

}  // namespace

Records measure_rpc(Session& session, const Benchmark& benchmark, uint32_t, const PathIndices& paths, const MeasureOptions& options) {
  std::vector<RowSpec> rows;
  for (const size_t index : paths) {
    const PathInfo& info = session.path(index).info();
    if (info.kind == Kind::limit || !takes_part(benchmark, session.path(index))) continue;
    const std::string& limit = info.baseline.empty() ? benchmark.limit : info.baseline;
    for (const Call& call : kCalls) rows.push_back(row_of(info.name, call, slices_of(limit, call)));
    if (info.kind != Kind::ours) continue;
    rows.push_back(row_of(info.name, kBigInOut, slices_of(info.name, kNull), kNull.metric));
    for (const std::string& other : info.more_baselines) {
      if (!is_there(session, other)) continue;
      const bool calls = session.path(find_path(session, other)).info().workloads.has(Workload::call);
      const RowSlices message{.path = other, .workload = Workload::am_short, .size = kAmSize};
      rows.push_back(row_of(info.name, kNull, calls ? slices_of(other, kNull) : message));
    }
  }
  return measure_rows(session, benchmark, rows, 1, options);
}

}  // namespace unet::bench
