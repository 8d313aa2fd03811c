// loss.cc - every path under every condition in every repetition; over itself on the whole wire, and over the kernel's TCP.
#include "apps/bench/benchmarks/loss.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "apps/bench/results/report.h"

namespace unet::bench {

namespace {

struct Goodputs {
  std::vector<double> values;  // one for each repetition; 0 where nothing came
  std::vector<CpuUse> cpu;     // of those in which something came
};

// By path and condition.
using Values = std::map<size_t, std::array<Goodputs, kConditions.size()>>;

Status add_goodput(Goodputs& to, Session& session, size_t index, uint32_t size, size_t condition) {
  const Slice slice{.workload = Workload::lossy,
                    .size = size,
                    .iterations = kConditions[condition].ms,
                    .warm_up = kConditions[condition].warm_ms,
                    .condition = static_cast<uint32_t>(condition)};
  auto result = session.run(index, slice);
  if (!result) return tl::unexpected(result.error());
  const std::vector<double> values = values_of(slice, *result);
  const double value = values.empty() ? 0 : values.front();
  to.values.push_back(value);
  // Processor time for each byte. Bytes of the time that does not count took as much as the others.
  const double bytes = value * static_cast<double>(result->elapsed);
  if (bytes > 0) to.cpu.push_back({static_cast<double>(result->cpu_a) / bytes, static_cast<double>(result->cpu_b) / bytes, 0});
  return {};
}

std::optional<double> ratio(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(of.size(), to.size()); ++i) {
    if (to[i] > 0) ratios.push_back(of[i] / to[i]);
  }
  return ratios.empty() ? std::nullopt : std::optional(median(std::move(ratios)));
}

bool is_chosen(const Condition& condition, const MeasureOptions& options) {
  return options.conditions.empty() || std::any_of(options.conditions.begin(), options.conditions.end(), [&](const std::string& pattern) {
           return name_matches(pattern, condition.name);
         });
}

Record record_of(const Benchmark& benchmark, const PathInfo& info, uint32_t size, const MeasureOptions& options, size_t condition,
                 const Goodputs& goodputs) {
  Record record = record_without_figures(benchmark, info, size, options);
  record.metric = std::string("goodput_") + kConditions[condition].name;
  record.summary = summarize_rates(goodputs.values);
  record.slices = goodputs.values.size();
  if (benchmark.of_sockets() && !goodputs.cpu.empty()) record.cpu = median_of(goodputs.cpu);
  return record;
}

}  // namespace

std::span<const Condition> conditions_of(const Benchmark& benchmark) {
  const std::span all(kConditions);
  return benchmark.of_sockets() ? all.subspan(kAmConditions) : all.first(kAmConditions);
}

Result<std::vector<Record>> measure_loss(Session& session, const Benchmark& benchmark, uint32_t size, const std::vector<size_t>& paths,
                                         const MeasureOptions& options) {
  const std::span<const Condition> conditions = conditions_of(benchmark);
  const auto first = static_cast<size_t>(conditions.data() - kConditions.data()), end = first + conditions.size();
  Values values;
  for (uint32_t i = 0; i < options.repeat; ++i) {
    for (size_t condition = first; condition < end; ++condition) {
      if (condition != first && !is_chosen(kConditions[condition], options)) continue;
      for (const size_t index : paths) {
        if (!session.refusal(index).empty()) continue;
        const Status added = add_goodput(values[index][condition], session, index, size, condition);
        if (session.over()) return fail(Errc::disconnected, session.over_text());
        if (!added) std::fprintf(stderr, "unet-bench: %s: %s\n", benchmark.name.c_str(), added.error().text.c_str());
      }
    }
  }
  std::vector<Record> records;
  for (const auto& [index, of] : values) {
    const PathInfo& info = session.path(index).info();
    for (size_t condition = first; condition < end; ++condition) {
      if (of[condition].values.empty()) continue;
      Record record = record_of(benchmark, info, size, options, condition, of[condition]);
      record.limit = median(of[first].values);
      record.ratio = ratio(of[condition].values, of[first].values);
      record.baseline = kWholeWire;
      records.push_back(record);
      for (const auto& [other, its] : values) {
        if (info.kind != Kind::ours || session.path(other).info().kind != Kind::kernel || its[condition].values.empty()) continue;
        record.limit = median(its[condition].values);
        record.ratio = ratio(of[condition].values, its[condition].values);
        record.baseline = session.path(other).info().name;
        records.push_back(record);
      }
    }
  }
  return records;
}

}  // namespace unet::bench
