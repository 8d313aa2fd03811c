// readings.cc - summaries over repetitions, and ratios within them.
#include "apps/bench/programs/readings.h"

#include <algorithm>
#include <cstdio>

#include "apps/bench/machine/end_signals.h"

namespace unet::bench {

namespace {

constexpr size_t kWhyMax = 400;  // of an error

void compare_with(Record& record, const std::map<uint32_t, double>& own, const std::map<uint32_t, double>& others) {
  std::vector<double> ratios, limits;
  for (const auto& [repetition, value] : own) {
    const auto found = others.find(repetition);
    if (found == others.end() || found->second <= 0) continue;
    ratios.push_back(value / found->second);
    limits.push_back(found->second);
  }
  if (ratios.empty()) return;
  record.ratio = median(std::move(ratios));
  record.limit = median(std::move(limits));
}

}  // namespace

void Readings::add(const ProgramFigure& figure, const std::string& path, uint32_t repetition) {
  metric(figure).values[path][repetition] = figure.value;
}

// Programs say much when they fail.
void Readings::leave_out(const std::string& what, std::string why) {
  if (end_wanted() || !left_out_.insert(what).second) return;
  std::replace(why.begin(), why.end(), '\n', ' ');
  if (why.size() > kWhyMax) why = why.substr(0, kWhyMax / 2) + " ... " + why.substr(why.size() - kWhyMax / 2);
  std::fprintf(stderr, "unet-bench: %s: %s left out: %s\n", benchmark_.name.c_str(), what.c_str(), why.c_str());
}

Readings::Metric& Readings::metric(const ProgramFigure& figure) {
  const auto found = std::find_if(metrics_.begin(), metrics_.end(), [&](const Metric& each) {
    return each.figure.metric == figure.metric && each.figure.size == figure.size;
  });
  if (found != metrics_.end()) return *found;
  metrics_.push_back({figure, {}});
  return metrics_.back();
}

std::vector<Record> Readings::records(const std::vector<PathInfo>& paths, const MeasureOptions& options) const {
  std::vector<Record> records;
  for (const Metric& metric : metrics_) {
    for (const PathInfo& path : paths) {
      const auto own = metric.values.find(path.name);
      if (own == metric.values.end()) continue;
      Record record = record_without_figures(benchmark_, path, metric.figure.size, options);
      record.metric = metric.figure.metric;
      record.unit = metric.figure.unit;
      std::vector<double> values;
      for (const auto& [repetition, value] : own->second) values.push_back(value);
      const bool is_rate = record.unit.find("/s") != std::string::npos;
      record.summary = is_rate ? summarize_rates(values) : summarize(values);
      record.slices = values.size();
      std::vector<std::string> baselines = path.more_baselines;
      baselines.insert(baselines.begin(), path.baseline);
      for (const std::string& baseline : baselines) {
        Record compared = record;
        compared.baseline = baseline;
        const auto others = metric.values.find(baseline);
        if (others != metric.values.end()) compare_with(compared, own->second, others->second);
        records.push_back(std::move(compared));
      }
    }
  }
  return records;
}

}  // namespace unet::bench
