// connect.h - the benchmark `connect`: how long it takes to open an end and to connect it.
#pragma once

#include <array>

#include "apps/bench/benchmarks/measure.h"

namespace unet::bench {

// The steps of a connection, in nanoseconds: what the records' metrics are called.
struct ConnectSteps {
  static constexpr std::array<const char*, 3> kNames = {"create", "connect", "total"};
  std::array<std::vector<double>, 3> of;

  // From a slice's samples: two per connection, in cycles.
  static ConnectSteps from(const std::vector<uint64_t>& samples);
};

Result<std::vector<Record>> measure_connect(Session& session, const Benchmark& benchmark, const std::vector<size_t>& paths,
                                            const MeasureOptions& options);

}  // namespace unet::bench
