// stats.cc - percentiles and ratios.
#include "apps/bench/results/stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "unet/base/check.h"

namespace unet::bench {

double percentile(std::vector<double>& values, double fraction) {
  UNET_CHECK(!values.empty());
  const double rank = std::ceil(fraction * static_cast<double>(values.size()));
  const size_t index = rank < 1 ? 0 : std::min(values.size(), static_cast<size_t>(rank)) - 1;
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

double median(std::vector<double> values) { return percentile(values, 0.5); }

std::optional<double> known_median(const std::vector<std::optional<double>>& values) {
  std::vector<double> known;
  for (const std::optional<double>& value : values) {
    if (value) known.push_back(*value);
  }
  if (known.empty()) return std::nullopt;
  return median(std::move(known));
}

namespace {

// Whether `count` samples suffice for the percentile at this share, counted from the nearer end.
bool is_known(size_t count, double fraction) {
  constexpr double kRounding = 1e-9;
  return static_cast<double>(count) * std::min(fraction, 1 - fraction) >= 1 - kRounding;
}

std::optional<double> known_percentile(std::vector<double>& values, double fraction) {
  if (!is_known(values.size(), fraction)) return std::nullopt;
  return percentile(values, fraction);
}

Summary summarize_tail(std::vector<double>& values, double p99, double p999) {
  Summary summary;
  summary.samples = values.size();
  if (values.empty()) return summary;
  summary.p50 = percentile(values, 0.5);
  summary.p99 = known_percentile(values, p99);
  summary.p999 = known_percentile(values, p999);
  summary.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return summary;
}

}  // namespace

Summary summarize(std::vector<double> values) { return summarize_tail(values, 0.99, 0.999); }

Summary summarize_rates(std::vector<double> values) { return summarize_tail(values, 0.01, 0.001); }

std::vector<double> distribution(std::vector<double> values) {
  std::vector<double> at;
  if (values.empty()) return at;
  for (const double fraction : kDistribution) at.push_back(known_percentile(values, fraction).value_or(NAN));
  return at;
}

bool limit_held(const SliceValue& slice, double tolerance) {
  const double low = std::min(slice.limit_before, slice.limit_after);
  const double high = std::max(slice.limit_before, slice.limit_after);
  return low > 0 && high <= low * (1 + tolerance);
}

bool Repetition::add(const SliceValue& slice, double tolerance) {
  if (slice.disturbed) {
    ++disturbed;
    return false;
  }
  if (!limit_held(slice, tolerance)) {
    ++dropped;
    return false;
  }
  values.push_back(slice.value);
  limits.push_back((slice.limit_before + slice.limit_after) / 2);
  return true;
}

CpuUse median_of(const std::vector<CpuUse>& uses) {
  const auto of = [&](double CpuUse::*whose) {
    std::vector<double> values;
    for (const CpuUse& use : uses) values.push_back(use.*whose);
    return median(std::move(values));
  };
  return {.a = of(&CpuUse::a), .b = of(&CpuUse::b), .services = of(&CpuUse::services)};
}

double median_of(const std::vector<Repetition>& repetitions, double (Repetition::*figure)() const) {
  std::vector<double> values;
  for (const Repetition& repetition : repetitions) {
    if (!repetition.empty()) values.push_back((repetition.*figure)());
  }
  return values.empty() ? 0 : median(std::move(values));
}

bool has_figure(const std::vector<Repetition>& repetitions) {
  size_t kept = 0;
  for (const Repetition& repetition : repetitions) kept += repetition.values.size();
  return kept >= kSlicesMin;
}

double usual_limit(const std::vector<Repetition>& repetitions) {
  std::vector<double> limits;
  for (const Repetition& repetition : repetitions) limits.insert(limits.end(), repetition.limits.begin(), repetition.limits.end());
  return limits.empty() ? 0 : median(std::move(limits));
}

std::vector<bool> drop_unusual(std::vector<Repetition>& repetitions, double usual) {
  std::vector<bool> stays;
  for (Repetition& repetition : repetitions) {
    const Repetition before =
        std::exchange(repetition, {.values = {}, .limits = {}, .dropped = repetition.dropped, .disturbed = repetition.disturbed});
    for (size_t i = 0; i < before.values.size(); ++i) {
      const double limit = before.limits[i];
      stays.push_back(limit <= usual * kUsualFactor && limit * kUsualFactor >= usual);
      if (!stays.back()) {
        ++repetition.dropped;
        continue;
      }
      repetition.values.push_back(before.values[i]);
      repetition.limits.push_back(limit);
    }
  }
  return stays;
}

std::optional<double> ratio_to_limit(const std::vector<Repetition>& repetitions, Relation relation) {
  if (!has_figure(repetitions)) return std::nullopt;
  std::vector<double> ratios;
  for (const Repetition& repetition : repetitions) {
    if (repetition.empty()) continue;
    const double p50 = repetition.p50();
    const double limit = repetition.limit();
    ratios.push_back(relation == Relation::over ? p50 / limit : p50 * limit * 1e-9);
  }
  if (ratios.empty()) return std::nullopt;
  return median(std::move(ratios));
}

std::optional<double> ratio_to_baseline(const std::vector<Repetition>& repetitions,
                                        const std::vector<Repetition>& baseline) {
  if (!has_figure(repetitions) || !has_figure(baseline)) return std::nullopt;
  std::vector<double> ratios;
  for (size_t i = 0; i < repetitions.size() && i < baseline.size(); ++i) {
    if (repetitions[i].empty() || baseline[i].empty()) continue;
    ratios.push_back(repetitions[i].p50() / baseline[i].p50());
  }
  if (ratios.empty()) return std::nullopt;
  return median(std::move(ratios));
}

}  // namespace unet::bench
