// splitc.cc - the rows of splitc: each kind of access on each path, beside the limit of its kind.
#include <array>

#include "apps/bench/benchmarks/methods.h"
#include "apps/bench/benchmarks/rows.h"

namespace unet::bench {

namespace {

constexpr uint32_t kWord = 8, kBulk = 65536;  // bytes

// The path that an access is compared with.
struct Limit {
  const char* path;
  Workload workload;
};
constexpr Limit kMiss{"limit-miss", Workload::word_read};
constexpr Limit kTrip{"limit-pingpong", Workload::rtt};
constexpr Limit kCopyOut{"limit-get", Workload::get};
constexpr Limit kCopyIn{"limit-put", Workload::put};

struct Access {
  const char* metric;
  const char* unit;
  Workload workload;
  uint32_t size;
  Relation relation;
  Limit limit;   // a read by messages has the round trip of an Active Message instead: the path's baseline
};
constexpr std::array kAccesses{
    Access{"read", "ns", Workload::word_read, kWord, Relation::over, kMiss},
    Access{"get", "words/s", Workload::word_get, kWord, Relation::product, kTrip},
    Access{"put", "words/s", Workload::word_put, kWord, Relation::product, kTrip},
    Access{"store", "words/s", Workload::word_store, kWord, Relation::product, kTrip},
    Access{"bulk_get", "GB/s", Workload::get, kBulk, Relation::over, kCopyOut},
    Access{"bulk_put", "GB/s", Workload::put, kBulk, Relation::over, kCopyIn},
    Access{"barrier", "ns", Workload::barrier, kWord, Relation::over, kTrip},
};

}  // namespace

Records measure_splitc(Session& session, const Benchmark& benchmark, uint32_t, const PathIndices& paths, const MeasureOptions& options) {
  std::vector<RowSpec> rows;
  for (const size_t index : paths) {
    const PathInfo& info = session.path(index).info();
    for (const Access& access : kAccesses) {
      const bool asks = access.workload == Workload::word_read && !info.baseline.empty();
      RowSlices limit{.path = access.limit.path, .workload = access.limit.workload, .size = access.size};
      if (asks) limit = {.path = info.baseline, .workload = Workload::am_short, .size = access.size};
      rows.push_back({.metric = access.metric,
                      .unit = access.unit,
                      .own = {.path = info.name, .workload = access.workload, .size = access.size},
                      .limit = std::move(limit),
                      .relation = access.relation});
    }
  }
  return measure_rows(session, benchmark, rows, kAccesses.size(), options);
}

}  // namespace unet::bench
