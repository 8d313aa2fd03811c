// emulated.cc - round trips in interleaved slices; then, of the path that can, thousands of endpoints made and ended.
#include "apps/bench/benchmarks/methods.h"

#include <cstdio>

namespace unet::bench {

namespace {

constexpr uint32_t kMade = 4096;

struct Made {
  std::vector<double> create, client, service;  // of each endpoint: ns, bytes, bytes
};

Result<Made> make_many(Session& session, size_t index, const MeasureOptions& options) {
  Made made;
  Slice slice;
  slice.workload = Workload::emulate;
  slice.iterations = kMade;
  // The first repetition fills the allocators, which keep the memory of ended endpoints: its memory counts, and the time of the others.
  for (uint32_t i = 0; i <= options.repeat; ++i) {
    auto result = session.run(index, slice);
    if (!result) return tl::unexpected(result.error());
    const std::vector<uint64_t>& samples = *result->samples;
    if (samples.size() != 3) return fail(Errc::protocol, "a slice without its figures");
    if (i != 0) made.create.push_back(to_ns(samples[0]) / kMade);
    if (i != 0) continue;
    made.client.push_back(static_cast<double>(samples[1]) / kMade);
    made.service.push_back(static_cast<double>(samples[2]) / kMade);
  }
  return made;
}

}  // namespace

Records measure_emulated(Session& session, const Benchmark& benchmark, uint32_t size, const PathIndices& paths,
                         const MeasureOptions& options) {
  auto records = measure(session, benchmark, size, paths, options);
  if (!records || size != benchmark.sizes.front()) return records;
  for (const size_t index : paths) {
    const Path& path = session.path(index);
    if (!session.refusal(index).empty() || !path.supports(Workload::emulate, size)) continue;
    const auto made = make_many(session, index, options);
    if (session.over()) return tl::unexpected(made.error());
    if (!made) {
      std::fprintf(stderr, "unet-bench: emulated: %s\n", made.error().text.c_str());
      continue;
    }
    records->push_back(record_of_values(benchmark, path.info(), 0, options, "create", "ns", made->create));
    records->push_back(record_of_values(benchmark, path.info(), 0, options, "client_memory", "B", made->client));
    records->push_back(record_of_values(benchmark, path.info(), 0, options, "service_memory", "B", made->service));
    auto idle = measure_endpoints(session, benchmark, size, {index}, options);
    if (!idle) return idle;
    records->insert(records->end(), idle->begin(), idle->end());
  }
  return records;
}

}  // namespace unet::bench
