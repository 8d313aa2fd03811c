// points.cc - JSON records to points.
#include "apps/bench/results/points.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "apps/bench/results/stats.h"

namespace unet::bench {

namespace {

using nlohmann::json;

constexpr size_t kTextMax = 80;  // of a name; it becomes a label

// Whatever a file calls a path ends up in a script and in a picture: printable text, without quotes.
std::string clean(std::string text) {
  std::erase_if(text, [](unsigned char c) { return c < ' ' || c > '~' || c == '\'' || c == '"' || c == '\\' || c == '`'; });
  return text.substr(0, kTextMax);
}

std::string text_of(const json& record, const char* field) {
  const auto found = record.find(field);
  return found != record.end() && found->is_string() ? clean(found->get<std::string>()) : "";
}

bool is_figure(const json& value) { return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0; }

// NaN for everything that is no figure.
double figure_of(const json& record, const char* field) {
  const auto found = record.find(field);
  return found != record.end() && is_figure(*found) ? found->get<double>() : NAN;
}

std::vector<double> distribution_of(const json& record) {
  const auto found = record.find("distribution");
  if (found == record.end() || !found->is_array() || found->size() != kDistribution.size()) return {};
  std::vector<double> values;
  for (const json& value : *found) {
    if (!value.is_null() && !is_figure(value)) return {};
    values.push_back(value.is_null() ? NAN : value.get<double>());
  }
  return values;
}

// Messages per millisecond, of which there may be none.
std::vector<double> timeline_of(const json& record) {
  const auto found = record.find("timeline");
  if (found == record.end() || !found->is_array() || found->size() != kTimelineBins) return {};
  if (!std::all_of(found->begin(), found->end(), is_figure)) return {};
  return found->get<std::vector<double>>();
}

// Whether `record` has what every record of unet-bench has.
bool is_record(const json& record) {
  return record.is_object() && !text_of(record, "bench").empty() && !text_of(record, "path").empty() && record.contains("p50") &&
         record.contains("size") && record["size"].is_number_unsigned() && record["size"].get<uint64_t>() <= UINT32_MAX;
}

// A name for the records of `file`: the name of the file, or its path where two have the same name.
std::string name_among(const std::vector<std::string>& files, const std::string& file) {
  const auto stem = [](const std::string& path) { return std::filesystem::path(path).stem(); };
  const auto same = std::count_if(files.begin(), files.end(), [&](const std::string& other) { return stem(other) == stem(file); });
  const std::string name = same > 1 ? file : stem(file).string();
  return clean(name.substr(name.size() - std::min(name.size(), kTextMax)));
}

Result<std::string> read_file(const std::string& file) {
  if (file == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream stream;
  std::error_code error;
  if (!std::filesystem::is_directory(file, error)) stream.open(file, std::ios::binary);  // a directory opens, and throws when read
  if (!stream.is_open()) return fail(Errc::not_found, "cannot read " + file + ": name a file that `unet-bench run ... --json FILE` wrote");
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

std::string name_in_errors(const std::string& file) { return file == "-" ? "standard input" : file; }

// The records of a list.
Result<std::vector<Point>> points_of(const json& list, const std::string& source) {
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_record)) {
    return fail(Errc::invalid_argument, source + " is not a list of unet-bench's records (`unet-bench run ... --json FILE` writes one)");
  }
  std::vector<Point> points;
  for (const json& record : list) {
    Point point;
    point.bench = text_of(record, "bench");
    point.path = point.label = text_of(record, "path");
    point.metric = text_of(record, "metric");
    point.unit = text_of(record, "unit");
    point.baseline = text_of(record, "baseline");
    point.size = record["size"].get<uint32_t>();
    point.p50 = figure_of(record, "p50");
    point.p99 = figure_of(record, "p99");
    if (std::isnan(point.p99)) point.p99 = point.p50;
    point.ratio = figure_of(record, "ratio");
    point.origin = {text_of(record, "machine"), text_of(record, "date"), text_of(record, "commit")};
    point.distribution = distribution_of(record);
    point.timeline = timeline_of(record);
    points.push_back(std::move(point));
  }
  return points;
}

}  // namespace

Family family_of(const std::string& path) {
  const auto begins = [&](const char* with) { return path.rfind(with, 0) == 0; };
  if (begins("limit-") || path == "serial") return Family::limit;
  if (begins("raw-")) return Family::raw;
  if (begins("kernel-") || begins("programs-kernel-")) return Family::kernel;
  return path == "mpi" ? Family::other : Family::ours;
}

Result<std::vector<Point>> parse_points(const std::string& text, const std::string& source) {
  return points_of(json::parse(text, nullptr, false), source);
}

Result<std::vector<std::vector<Point>>> read_file_runs(const std::string& file) {
  auto text = read_file(file);
  if (!text) return tl::unexpected(text.error());
  const std::string source = name_in_errors(file);
  json content = json::parse(*text, nullptr, false);
  if (content.is_object() && content.contains("report")) {
    if (content["report"] != kReportFormat) {
      return fail(Errc::invalid_argument, source + " is a report of format " + content["report"].dump() + ", and this program reads " +
                                              std::to_string(kReportFormat) + ": use the unet-bench that wrote it");
    }
    content = content.value("rounds", json());
  } else {
    content = json::array({std::move(content)});
  }
  if (!content.is_array()) return fail(Errc::invalid_argument, source + " is a report without rounds");
  std::vector<std::vector<Point>> runs;
  for (const json& list : content) {
    auto points = points_of(list, source);
    if (!points) return tl::unexpected(points.error());
    runs.push_back(std::move(*points));
  }
  return runs;
}

Result<std::vector<Point>> read_file_points(const std::string& file) {
  auto text = read_file(file);
  if (!text) return tl::unexpected(text.error());
  return parse_points(*text, name_in_errors(file));
}

Result<std::vector<Point>> read_points(const std::vector<std::string>& files) {
  std::vector<Point> all;
  std::set<std::tuple<std::string, std::string, std::string, uint32_t>> seen;
  for (const std::string& file : files) {
    auto points = read_file_points(file);
    if (!points) return points;
    const std::string name = name_among(files, file);
    std::set<std::pair<std::string, std::string>> again;
    for (const Point& point : *points) {
      if (seen.count({point.bench, point.path, point.metric, point.size}) != 0) again.insert({point.bench, point.path});
    }
    for (Point& point : *points) {
      seen.insert({point.bench, point.path, point.metric, point.size});
      if (again.count({point.bench, point.path}) != 0) point.label += " (" + name + ")";
      all.push_back(std::move(point));
    }
  }
  if (std::all_of(all.begin(), all.end(), [](const Point& point) { return !(point.p50 > 0); })) {
    return fail(Errc::invalid_argument, "there is no record with a figure above 0 in " + (files.empty() ? "no file" : files.front()));
  }
  return all;
}

}  // namespace unet::bench
