// figures.cc - points to figures.
#include "apps/bench/plot/figures.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "apps/bench/results/report.h"
#include "apps/bench/results/sizes.h"
#include "apps/bench/results/stats.h"

namespace unet::bench {

namespace {

struct ColouredPoint : Point {
  size_t colour = 0;  // the path's, in all pictures
};

// All points of one benchmark, metric and unit: one picture.
struct Group {
  std::string bench, metric, unit;
  std::vector<ColouredPoint> points;
};

template <typename Item, typename Match, typename Make>
Item& find_or_add(std::vector<Item>& list, Match match, Make make) {
  const auto found = std::find_if(list.begin(), list.end(), match);
  if (found != list.end()) return *found;
  return list.emplace_back(make());
}

// Benchmarks that put a number into their metric (`rtt_16_idle`) share one picture: the number belongs to the label.
std::vector<Group> groups_of(const std::vector<ColouredPoint>& points) {
  std::vector<Group> groups;
  for (ColouredPoint point : points) {
    std::string metric = point.metric;
    if (std::any_of(metric.begin(), metric.end(), [](unsigned char c) { return c >= '0' && c <= '9'; }) || point.bench == "connect") {
      point.label += ", " + metric;
      metric.clear();
    }
    auto& group = find_or_add(
        groups, [&](const Group& g) { return g.bench == point.bench && g.metric == metric && g.unit == point.unit; },
        [&] { return Group{point.bench, metric, point.unit, {}}; });
    group.points.push_back(std::move(point));
  }
  return groups;
}

bool is_serial(const Point& point) { return point.bench == "kernels" && point.path == "serial"; }

// A name from a record as a file name: it may not lead to another directory.
std::string file_name(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '_'; }, '-');
  return text;
}

std::string title_of(const Group& group) {
  if (group.bench == "rtt") return "Round trip of one message";
  if (group.bench == "bandwidth") return "Bandwidth of a one-way stream";
  if (group.bench == "put") return "Bandwidth of puts";
  if (group.bench == "rate") return "Messages per second, one way";
  return group.bench + (group.metric.empty() || group.metric == group.bench ? "" : ": " + group.metric);
}

// Units as people read them. A time below a millisecond is in microseconds.
void scale(Figure& figure, const std::string& unit) {
  figure.y_label = unit;
  if (unit == "msg/s") {
    figure.y_label = "million messages / s";
    figure.y_scale = 1e-6;
  } else if (unit == "ns") {
    double most = 0;
    for (const Curve& curve : figure.curves) {
      for (const auto& value : curve.values) most = std::fmax(most, value.second);
    }
    const bool milliseconds = most >= 10e6;
    figure.y_label = milliseconds ? "time, ms" : "time, us";
    figure.y_scale = milliseconds ? 1e-6 : 1e-3;
  }
}

// A factor of ten between the least and the greatest needs a logarithm.
bool wide(const std::vector<Curve>& curves) {
  double least = INFINITY, most = 0;
  for (const Curve& curve : curves) {
    for (const auto& value : curve.values) {
      least = std::fmin(least, value.second);
      most = std::fmax(most, value.second);
    }
  }
  return most > 10 * least;
}

Curve& curve_of(std::vector<Curve>& curves, const ColouredPoint& point) {
  return find_or_add(
      curves, [&](const Curve& curve) { return curve.label == point.label; },
      [&] { return Curve{point.label, family_of(point.path), point.colour, {}, {}}; });
}

// A serial program has no ranks: its time is a line across all numbers of them.
std::vector<ColouredPoint> with_serial_across(const std::vector<ColouredPoint>& points) {
  std::set<uint32_t> sizes;
  for (const Point& point : points) sizes.insert(point.size);
  std::vector<ColouredPoint> all;
  for (ColouredPoint point : points) {
    const std::set<uint32_t> at = is_serial(point) ? sizes : std::set<uint32_t>{point.size};
    for (const uint32_t size : at) {
      point.size = size;
      all.push_back(point);
    }
  }
  return all;
}

Figure over_size(const Group& group) {
  Figure figure{.kind = Figure::Kind::over_size, .name = file_name(group.bench), .title = title_of(group), .note = "", .y_label = "",
                .over_ranks = group.bench == "kernels", .curves = {}};
  std::vector<ColouredPoint> sorted = with_serial_across(group.points);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Point& left, const Point& right) { return left.size < right.size; });
  for (const ColouredPoint& point : group.points) curve_of(figure.curves, point);  // in the order of the file
  for (const ColouredPoint& point : sorted) {
    Curve& curve = curve_of(figure.curves, point);
    curve.values.push_back({point.size, point.p50});
    if (group.unit == "ns") curve.high.push_back(point.p99);
  }
  if (group.unit == "ns") figure.title += ": median (shade: up to the 99th percentile)";
  return figure;
}

Figure bars(const Group& group) {
  Figure figure{.kind = Figure::Kind::bars, .name = file_name(group.bench), .title = title_of(group), .note = "", .y_label = "",
                .curves = {}};
  for (const ColouredPoint& point : group.points) {
    figure.curves.push_back({point.label, family_of(point.path), point.colour, {{0, point.p50}}, {}});
  }
  return figure;
}

// x: how many nines a percentile has, so that the tail, which is a thousandth of the samples, gets its room.
std::optional<Figure> distribution(const Group& group, std::optional<uint32_t> size) {
  uint32_t least = UINT32_MAX;
  for (const Point& point : group.points) {
    if (!point.distribution.empty()) least = std::min(least, point.size);
  }
  const uint32_t wanted = size.value_or(least);
  Figure figure{.kind = Figure::Kind::distribution,
                .name = file_name(group.bench + "-distribution"),
                .title = title_of(group) + ", " + format_size(wanted) + ": distribution",
                .note = "",
                .y_label = "",
                .curves = {}};
  for (const ColouredPoint& point : group.points) {
    if (point.distribution.empty() || point.size != wanted) continue;
    Curve& curve = curve_of(figure.curves, point);
    for (size_t i = 0; i < kDistribution.size(); ++i) curve.values.push_back({-std::log10(1 - kDistribution[i]), point.distribution[i]});
  }
  if (figure.curves.empty()) return std::nullopt;
  return figure;
}

// x: milliseconds since the network interface was replaced.
std::optional<Figure> timeline(const Group& group) {
  Figure figure{.kind = Figure::Kind::timeline,
                .name = file_name(group.bench + "-timeline"),
                .title = title_of(group) + ", messages in each millisecond",
                .note = "",
                .y_label = "messages / ms",
                .curves = {}};
  for (const ColouredPoint& point : group.points) {
    if (point.timeline.empty()) continue;
    Curve& curve = curve_of(figure.curves, point);
    for (size_t i = 0; i < point.timeline.size(); ++i) {
      curve.values.push_back({static_cast<double>(i) - kTimelineBefore, point.timeline[i]});
    }
  }
  if (figure.curves.empty()) return std::nullopt;
  return figure;
}

std::string origin_line(const Origin& origin) {
  std::string line;
  for (const std::string& part : {origin.machine, origin.date, origin.commit}) line += (line.empty() || part.empty() ? "" : ", ") + part;
  return line;
}

// The origins of its records, each once.
std::string note_of(const Group& group) {
  std::set<std::string> origins;
  for (const Point& point : group.points) origins.insert(origin_line(point.origin));
  std::string note;
  for (const std::string& origin : origins) note += (note.empty() || origin.empty() ? "" : "; ") + origin;
  return note;
}

void finish(Figure& figure, const Group& group) {
  figure.note = note_of(group);
  figure.log_y = figure.kind != Figure::Kind::bars && wide(figure.curves);
  scale(figure, group.unit);
}

// A logarithmic scale has no place for 0: a picture marks it, as it does a record without figures.
void drop_zeros(Point& point) {
  for (double* const figure : {&point.p50, &point.p99}) {
    if (*figure == 0) *figure = NAN;
  }
  if (std::find(point.distribution.begin(), point.distribution.end(), 0) != point.distribution.end()) point.distribution.clear();
}

// Numbers the paths in the order in which they appear, the limits aside: a path has one colour in all pictures.
std::vector<ColouredPoint> coloured(const std::vector<Point>& points) {
  std::vector<ColouredPoint> list;
  std::vector<std::string> paths;
  for (const Point& point : points) {
    list.push_back({point});
    drop_zeros(list.back());
    if (family_of(point.path) == Family::limit) continue;
    const auto found = std::find(paths.begin(), paths.end(), point.label);
    list.back().colour = static_cast<size_t>(found - paths.begin());
    if (found == paths.end()) paths.push_back(point.label);
  }
  return list;
}

}  // namespace

std::vector<Figure> figures_of(const std::vector<Point>& points, std::optional<uint32_t> size) {
  std::vector<Figure> figures;
  for (const Group& group : groups_of(coloured(points))) {
    const bool sizes = std::any_of(group.points.begin(), group.points.end(),
                                   [&](const Point& point) { return point.size != group.points.front().size; });
    Figure figure = sizes ? over_size(group) : bars(group);
    finish(figure, group);
    const auto add = [&](Figure one) {
      const auto has_value = [](const Curve& curve) {
        return std::any_of(curve.values.begin(), curve.values.end(), [](const auto& value) { return !std::isnan(value.second); });
      };
      if (std::none_of(one.curves.begin(), one.curves.end(), has_value)) return;
      const bool taken = std::any_of(figures.begin(), figures.end(), [&](const Figure& other) { return other.name == one.name; });
      if (taken) one.name += file_name("-" + group.metric);  // a second metric of the same benchmark
      figures.push_back(std::move(one));
    };
    add(std::move(figure));
    if (auto line = timeline(group)) {
      line->note = note_of(group);
      add(std::move(*line));
    }
    if (auto shape = distribution(group, size)) {
      finish(*shape, group);
      add(std::move(*shape));
    }
  }
  return figures;
}

}  // namespace unet::bench
