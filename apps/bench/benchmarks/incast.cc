// incast.cc - the flows of Active Messages, all in one process, and what the receiver's link carries; side B does nothing.
#include "apps/bench/benchmarks/methods.h"

#include <cstdio>

#include "am/sim_fabric.h"

namespace unet::bench {

namespace {

constexpr uint32_t kSenders[] = {2, 8, 32, 64, 128};
constexpr double kShare = 1e9;  // a sample that is a share of one

// Samples: goodput as a share of the link in billionths, 99th percentile and unloaded time in ns, frames dropped.
class Incast final : public Path {
 public:
  using Path::Path;
  Status fits(Workload, uint32_t size) const override {
    if (size == 0 || size > kMessageMax) return fail(Errc::unavailable, "requests have 1 B to 64 KiB");
    return {};
  }
  // slice.iterations senders, the seed slice.condition.
  Outcome run(const Slice& slice, RunContext& context) override {
    if (context.side == Side::b) return {};
    const uint64_t start = cycles();
    const am::sim::Incast result = am::sim::incast(static_cast<uint32_t>(slice.iterations), slice.size, slice.condition);
    context.samples.push_back(static_cast<uint64_t>(result.goodput * kShare));
    context.samples.push_back(result.p99);
    context.samples.push_back(result.unloaded);
    context.samples.push_back(result.dropped);
    return {cycles() - start, slice.iterations};
  }
};

struct Figures {
  std::vector<double> goodput, p99, unloaded;
};

void add_records(std::vector<Record>& records, const Record& blank, uint32_t senders, const Figures& of) {
  const double link = am::sim::kIncastWire.bits_per_second / 8e9;  // GB/s
  const auto add = [&](const char* metric, const char* unit, const Summary& summary, double limit, const char* baseline) {
    Record record = blank;
    record.metric = metric + ("_" + std::to_string(senders)) + "_senders";
    record.unit = unit;
    record.summary = summary;
    record.slices = of.p99.size();
    record.limit = limit;
    record.ratio = summary.p50 / limit;
    record.baseline = baseline;
    records.push_back(std::move(record));
  };
  std::vector<double> rates;
  for (const double share : of.goodput) rates.push_back(share * link);
  add("goodput", "GB/s", summarize_rates(std::move(rates)), link, "the link");
  add("p99", "ns", summarize(of.p99), median(of.unloaded), "one request alone");
}

}  // namespace

void add_incast(Paths& paths) {
  paths.push_back(std::make_unique<Incast>(PathInfo{
      .name = "am-sim",
      .kind = Kind::ours,
      .what = "Active Messages' flows between machines of a simulated network, in virtual time",
      .setting = "100 Gbit/s links to one switch, 8 us for a round trip, queues of 1024 frames",
      .workloads = {Workload::incast},
      .only = {"am-incast"}}));
}

Records measure_incast(Session& session, const Benchmark& benchmark, uint32_t size, const PathIndices& paths,
                       const MeasureOptions& options) {
  std::vector<Record> records;
  for (const size_t index : paths) {
    for (const uint32_t senders : kSenders) {
      Figures figures;
      for (uint32_t i = 0; i < options.repeat; ++i) {
        const Slice slice{.workload = Workload::incast, .size = size, .iterations = senders, .condition = i + 1};
        auto result = session.run(index, slice);
        if (!result) return tl::unexpected(result.error());
        const std::vector<uint64_t>& samples = *result->samples;
        if (samples.size() != 4) return fail(Errc::protocol, "a slice without its figures");
        figures.goodput.push_back(static_cast<double>(samples[0]) / kShare);
        figures.p99.push_back(static_cast<double>(samples[1]));
        figures.unloaded.push_back(static_cast<double>(samples[2]));
      }
      add_records(records, record_without_figures(benchmark, session.path(index).info(), size, options), senders, figures);
    }
  }
  return records;
}

}  // namespace unet::bench
