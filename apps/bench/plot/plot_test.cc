// plot_test.cc - which pictures records give, what a file may hold, and that a name from a file stays a name.
#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include "apps/bench/plot/figures.h"
#include "apps/bench/plot/gnuplot.h"
#include "apps/bench/results/report.h"
#include "apps/bench/results/stats.h"

namespace unet::bench {
namespace {

Record record_of(const std::string& path, uint32_t size, double p50) {
  Record record;
  record.bench = record.metric = "rtt";
  record.unit = "ns";
  record.path = path;
  record.size = size;
  record.summary = {p50, 2 * p50, 3 * p50, p50, 100};
  record.distribution = std::vector<double>(kDistribution.size(), p50);
  return record;
}

std::vector<Point> points_of(const std::vector<Record>& records) {
  auto points = parse_points(to_json(records), "test");
  REQUIRE(points);
  return *points;
}

TEST_CASE("what unet-bench writes is read again", "[plot]") {
  Record empty = record_of("local", 8, 0);
  empty.summary = {};
  const auto points = points_of({record_of("local", 48, 130), empty});
  REQUIRE(points.size() == 2);
  CHECK(std::isnan(points[1].p50));  // a record without figures is a mark in the picture
  CHECK(points[0].path == "local");
  CHECK(points[0].size == 48);
  CHECK(points[0].p50 == 130);
  CHECK(points[0].p99 == 260);
  CHECK(points[0].distribution.size() == kDistribution.size());
}

TEST_CASE("files of one name are told apart by where they are", "[plot]") {
  char directory[] = "/tmp/unet-plot-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  std::vector<std::string> files;
  for (const char* run : {"a", "b", "c"}) {
    const auto at = std::filesystem::path(directory) / run;
    std::filesystem::create_directory(at);
    files.push_back(at / "results.json");
    std::ofstream(files.back()) << to_json({record_of("local", 8, 100)});
  }
  const auto points = read_points(files);
  std::filesystem::remove_all(directory);
  REQUIRE(points);
  REQUIRE(points->size() == 3);
  CHECK((*points)[1].label == "local (" + files[1] + ")");
  CHECK((*points)[2].label == "local (" + files[2] + ")");
}

TEST_CASE("sizes become a curve, and single latencies a distribution of the smallest", "[plot]") {
  const auto points = points_of({record_of("local", 4096, 900), record_of("local", 8, 100), record_of("kernel-tcp", 8, 9000)});
  const auto figures = figures_of(points, {});
  REQUIRE(figures.size() == 2);
  CHECK(figures[0].name == "rtt");
  REQUIRE(figures[0].curves.size() == 2);
  REQUIRE(figures[0].curves[0].values.size() == 2);
  CHECK(figures[0].curves[0].values[0] == std::pair<double, double>(8, 100));  // sorted by size
  CHECK(figures[0].curves[0].high == std::vector<double>{200, 1800});
  CHECK(figures[0].curves[1].family == Family::kernel);
  CHECK(figures[0].log_y);
  CHECK(figures[1].name == "rtt-distribution");
  CHECK(figures[1].curves.size() == 2);
  CHECK(figures_of(points_of({record_of("local", 8, 100), record_of("local", 16, 100)}), 16)[1].title.find("16 B") != std::string::npos);
}

TEST_CASE("a picture names what is missing, and where its records come from", "[plot]") {
  Record missing = record_of("local", 64, 0);
  missing.remove_figures();
  const Origin origin{.machine = "a machine", .date = "a day", .commit = "c0ffee"};
  const auto points = parse_points(to_json({record_of("local", 8, 100), missing, record_of("local", 512, 200)}, origin), "test");
  REQUIRE(points);
  const auto figures = figures_of(*points, {});
  const std::string curves = gnuplot_script(figures[0], "svg", "x.svg");
  CHECK(curves.find("'local (no figure: 64 B)'") != std::string::npos);
  CHECK(curves.find("64 NaN NaN") != std::string::npos);
  CHECK(curves.find("'a machine, a day, c0ffee'") != std::string::npos);
  Record shared = record_of("shared", 8, 0);
  shared.remove_figures();
  const auto bars = figures_of(points_of({record_of("local", 8, 100), shared}), {});
  CHECK(gnuplot_script(bars[0], "svg", "x.svg").find("'shared (no figure)'") != std::string::npos);
  CHECK_FALSE(read_points({}));
}

TEST_CASE("a path has one colour in every picture", "[plot]") {
  Record tcp = record_of("kernel-tcp", 8, 9000), shared = record_of("shared", 8, 300), again = shared, more = tcp;
  again.bench = more.bench = "bandwidth";
  const auto figures = figures_of(points_of({tcp, shared, record_of("limit-pingpong", 8, 80), again, more}), {});
  const auto colours_of = [&](const std::string& name) {
    std::map<std::string, size_t> colours;
    for (const Figure& figure : figures) {
      if (figure.name != name) continue;
      for (const Curve& curve : figure.curves) colours[curve.label] = curve.colour;
    }
    return colours;
  };
  CHECK(colours_of("rtt")["shared"] == colours_of("bandwidth")["shared"]);
  CHECK(colours_of("rtt")["kernel-tcp"] == colours_of("bandwidth")["kernel-tcp"]);
  CHECK(colours_of("rtt")["kernel-tcp"] != colours_of("rtt")["shared"]);
}

TEST_CASE("one size becomes bars, and each number in a metric a bar of its own", "[plot]") {
  Record none = record_of("local", 48, 100), many = record_of("local", 48, 120);
  none.bench = many.bench = "endpoints";
  none.metric = "rtt_0_idle";
  many.metric = "rtt_4096_idle";
  none.distribution = many.distribution = {};
  const auto figures = figures_of(points_of({none, many}), {});
  REQUIRE(figures.size() == 1);
  CHECK(figures[0].kind == Figure::Kind::bars);
  REQUIRE(figures[0].curves.size() == 2);
  CHECK(figures[0].curves[1].label == "local, rtt_4096_idle");
}

TEST_CASE("a serial program is a line across all numbers of ranks", "[plot]") {
  std::vector<Record> records;
  for (const auto& [path, ranks, time] :
       {std::tuple{"direct", 1u, 110.0}, {"direct", 2u, 60.0}, {"direct", 4u, 65.0}, {"serial", 1u, 100.0}}) {
    records.push_back(record_of(path, ranks, time));
    records.back().bench = "kernels";
    records.back().metric = "cg";
    records.back().distribution.clear();
  }
  const auto figures = figures_of(points_of(records), std::nullopt);
  REQUIRE(figures.size() == 1);
  REQUIRE(figures[0].curves.size() == 2);
  const Curve& serial = figures[0].curves[1];
  CHECK(serial.family == Family::limit);
  CHECK(serial.values == std::vector<std::pair<double, double>>{{1, 100}, {2, 100}, {4, 100}});
  CHECK(serial.high.size() == 3);
  CHECK(figures[0].curves[0].values == std::vector<std::pair<double, double>>{{1, 110}, {2, 60}, {4, 65}});
}

TEST_CASE("messages around a moment become a line over time", "[plot]") {
  Record blackout = record_of("crash", 8, 100), local = record_of("crash", 8, 90), lies = record_of("upgrade", 8, 100);
  blackout.bench = local.bench = lies.bench = "restart";
  blackout.metric = lies.metric = "blackout";
  local.metric = "local";
  blackout.timeline = local.timeline = std::vector<double>(kTimelineBins, 7);
  blackout.timeline[kTimelineBefore] = 0;
  lies.timeline = {1, 2, 3};
  const auto figures = figures_of(points_of({blackout, local, lies}), {});
  std::set<std::string> names;
  for (const Figure& figure : figures) CHECK(names.insert(figure.name).second);  // one file each
  const auto line = std::find_if(figures.begin(), figures.end(), [](const Figure& each) { return each.name == "restart-timeline"; });
  REQUIRE(line != figures.end());
  REQUIRE(line->kind == Figure::Kind::timeline);
  REQUIRE(line->curves.size() == 1);
  REQUIRE(line->curves[0].values.size() == kTimelineBins);
  CHECK(line->curves[0].values[kTimelineBefore] == std::pair<double, double>(0, 0));
  CHECK(line->curves[0].values.front() == std::pair<double, double>(-double{kTimelineBefore}, 7));
  CHECK(gnuplot_script(*line, "png", "x.png").find("ms since") != std::string::npos);
}

TEST_CASE("what is no list of records is refused by the name of its file", "[plot]") {
  for (const char* text : {"", "{", "{}", "[1]", "[{}]", R"([{"bench":"rtt","path":"x","p50":1,"size":-1}])",
                           R"([{"bench":"rtt","path":"x","p50":1,"size":99999999999}])", R"([{"bench":1,"path":"x","p50":1,"size":1}])"}) {
    INFO(text);
    const auto points = parse_points(text, "some.json");
    REQUIRE_FALSE(points);
    CHECK(points.error().text.find("some.json") != std::string::npos);
  }
  // Figures of another type are no figures.
  const auto wrong = parse_points(R"([{"bench":"b","path":"p","p50":"1","size":1},{"bench":"b","path":"p","p50":-1,"size":1}])", "x");
  REQUIRE(wrong->size() == 2);
  for (const Point& point : *wrong) CHECK(std::isnan(point.p50));
  const auto odd = parse_points(R"([{"bench":"b","path":"p","p50":1,"size":1,"p99":null,"distribution":[1,"2"]}])", "x");
  REQUIRE(odd->size() == 1);
  CHECK(odd->front().p99 == 1);
  CHECK(odd->front().distribution.empty());
}

TEST_CASE("a figure of 0 is marked as missing, because a logarithmic scale has no place for it", "[plot]") {
  const auto points = parse_points(R"([{"bench":"b","path":"p","p50":0,"size":1},{"bench":"b","path":"p","p50":1,"size":2}])", "x");
  REQUIRE(points);
  CHECK(points->front().p50 == 0);
  const auto figures = figures_of(*points, {});
  REQUIRE(figures.size() == 1);
  const auto& values = figures[0].curves[0].values;
  REQUIRE(values.size() == 2);
  CHECK(std::isnan(values[0].second));
  CHECK(values[1].second == 1);
}

TEST_CASE("a name from a file is neither a command nor a path", "[plot]") {
  const auto points = parse_points(R"([{"bench":"../x","path":"a'\n; system('touch /tmp/no') #`id`\"","p50":1,"size":1}])", "x");
  REQUIRE(points);
  const auto figures = figures_of(*points, {});
  REQUIRE(figures.size() == 1);
  CHECK(figures[0].name == "---x");
  CHECK(figures[0].curves[0].label == "a; system(touch /tmp/no) #id");
  CHECK(gnuplot_script(figures[0], "svg", "it's").find("set output 'it''s'") != std::string::npos);
}

}  // namespace
}  // namespace unet::bench
