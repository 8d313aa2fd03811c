// rpc.cc - the rows of rpc: each call on each path, beside the least that it can be, and ours beside other things of the same run; of
// rpc-cost: the parts of a call; of rpc-scale: many callers; and of ports: message ports.
#include <algorithm>
#include <utility>

#include "apps/bench/benchmarks/methods.h"
#include "apps/bench/benchmarks/rows.h"
#include "apps/bench/workloads/calls.h"
#include "apps/bench/workloads/ports.h"

namespace unet::bench {

namespace {

constexpr const Call& kNull = kCalls[0];
constexpr const Call& kBigInOut = kCalls[3];
static_assert(kNull.procedure == Procedure::null && kBigInOut.procedure == Procedure::in_out);
constexpr uint32_t kFewCallers = 32;
constexpr uint32_t kMessage = 8;  // bytes of a message beside a null call

RowSlices slices_of(const std::string& path, const Call& call) {
  return {.path = path, .workload = Workload::call, .size = call.size, .condition = static_cast<uint32_t>(call.procedure)};
}

RowSpec row_of(const std::string& path, const Call& call, RowSlices limit, std::string baseline = "") {
  return {.metric = call.metric, .unit = "ns", .own = slices_of(path, call), .limit = std::move(limit), .baseline = std::move(baseline)};
}

// What a null call is compared with on another path: a null call, a short Active Message with its reply, or a round trip of a message.
RowSlices beside_null(const PathInfo& other) {
  if (other.workloads.has(Workload::call)) return slices_of(other.name, kNull);
  const bool is_am = other.workloads.has(Workload::am_short);
  return {.path = other.name, .workload = is_am ? Workload::am_short : Workload::rtt, .size = kMessage};
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
      rows.push_back(row_of(info.name, kNull, beside_null(session.path(find_path(session, other)).info())));
    }
  }
  return measure_rows(session, benchmark, rows, 1, options);
}

Records measure_rpc_cost(Session& session, const Benchmark& benchmark, uint32_t, const PathIndices& paths, const MeasureOptions& options) {
  constexpr std::pair<CallPart, const char*> kParts[] = {{CallPart::client_send, "client_send"},
                                                         {CallPart::client_poll, "client_poll"},
                                                         {CallPart::client_receive, "client_receive"},
                                                         {CallPart::server_poll, "server_poll"},
                                                         {CallPart::server_serve, "server_serve"}};
  constexpr double kRows = 10;
  std::vector<RowSpec> rows;
  for (const size_t index : paths) {
    const PathInfo& info = session.path(index).info();
    if (!takes_part(benchmark, session.path(index)) || info.more_baselines.size() < 2) continue;
    const std::string& path = info.name;
    const RowSlices trip{.path = benchmark.limit, .workload = Workload::rtt, .size = kMessage};
    const RowSlices message{.path = info.more_baselines[1], .workload = Workload::rtt, .size = kMessage};
    const RowSlices am{.path = info.more_baselines[0], .workload = Workload::am_short, .size = kMessage};
    const auto add = [&](const char* metric, RowSlices own, RowSlices limit, bool difference) {
      rows.push_back({.metric = metric,
                      .unit = "ns",
                      .own = std::move(own),
                      .limit = std::move(limit),
                      .path = path,
                      .difference = difference});
    };
    add("null", slices_of(path, kNull), trip, false);
    add("channel", message, trip, true);
    if (is_there(session, message.path) && is_there(session, am.path)) {
      add("active_message", am, message, true);
      add("call", slices_of(path, kNull), am, true);
    }
    add("stub", slices_of(path, kCalls[1]), slices_of(path, kNull), true);
    for (const auto& [part, name] : kParts) {
      add(name, {.path = path, .workload = Workload::call_part, .condition = static_cast<uint32_t>(part)}, trip, false);
    }
  }
  return measure_rows(session, benchmark, rows, kRows, options);
}

Records measure_rpc_scale(Session& session, const Benchmark& benchmark, uint32_t size, const PathIndices& paths,
                          const MeasureOptions& options) {
  std::vector<RowSpec> rows;
  for (const size_t index : paths) {
    const PathInfo& info = session.path(index).info();
    if (info.kind == Kind::limit || !takes_part(benchmark, session.path(index))) continue;
    const std::string limit = info.baseline.empty() ? benchmark.limit : info.baseline;
    const RowSlices trip{.path = limit, .workload = Workload::call};  // a null call
    rows.push_back({.metric = "latency",
                    .unit = "ns",
                    .own = {.path = info.name, .workload = Workload::callers, .size = size},
                    .limit = trip});
    rows.push_back({.metric = "rate",
                    .unit = "msg/s",
                    .own = {.path = info.name, .workload = Workload::callers_rate, .size = size},
                    .limit = trip,
                    .relation = Relation::product});
    if (size <= kFewCallers) continue;
    rows.push_back({.metric = "rate",
                    .unit = "msg/s",
                    .own = {.path = info.name, .workload = Workload::callers_rate, .size = size},
                    .limit = {.path = info.name, .workload = Workload::callers_rate, .size = kFewCallers},
                    .baseline = std::to_string(kFewCallers) + " callers"});
  }
  return measure_rows(session, benchmark, rows, 2, options);
}

Records measure_rpc_death(Session& session, const Benchmark& benchmark, uint32_t, const PathIndices& paths, const MeasureOptions& options) {
  constexpr Slice kSlice{.workload = Workload::server_death, .iterations = 10};
  std::vector<Record> records;
  for (const size_t index : paths) {
    if (!session.path(index).supports(kSlice.workload, 0)) continue;
    std::vector<double> times;
    for (uint32_t i = 0; i < options.repeat && session.refusal(index).empty(); ++i) {
      const auto result = session.run(index, kSlice);
      if (!result) return tl::unexpected(result.error());
      for (const uint64_t sample : *result->samples) times.push_back(to_ns(sample));
    }
    if (times.empty()) continue;
    const PathInfo& info = session.path(index).info();
    const double longest = *std::max_element(times.begin(), times.end());
    records.push_back(record_of_values(benchmark, info, 0, options, benchmark.metric, benchmark.unit, times));
    records.push_back(record_of_values(benchmark, info, 0, options, benchmark.metric + "_max", benchmark.unit, {longest}));
  }
  return records;
}

Records measure_ports(Session& session, const Benchmark& benchmark, uint32_t size, const PathIndices& paths,
                      const MeasureOptions& options) {
  const bool is_null = size <= Benchmark::kSmallMax;
  const Workload workload = is_null ? Workload::rtt : Workload::bandwidth;
  std::vector<RowSpec> rows;
  for (const size_t index : paths) {
    const PathInfo& info = session.path(index).info();
    if (info.kind == Kind::limit || !takes_part(benchmark, session.path(index))) continue;
    const auto add = [&](uint32_t flow, RowSlices limit) {
      rows.push_back({.metric = kPortFlows[flow],
                      .unit = is_null ? "ns" : "GB/s",
                      .own = {.path = info.name, .workload = workload, .size = size, .condition = flow},
                      .limit = std::move(limit)});
    };
    for (uint32_t i = 0; i < kPortFlows.size(); ++i) add(i, {.path = benchmark.limit_path(size), .workload = workload, .size = size});
    const std::string& am = info.more_baselines[0];
    if (is_null && is_there(session, am)) add(0, {.path = am, .workload = Workload::am_short, .size = size});
  }
  return measure_rows(session, benchmark, rows, 4, options);
}

}  // namespace unet::bench
