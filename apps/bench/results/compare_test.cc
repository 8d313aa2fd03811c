// compare_test.cc - verdicts about runs of two builds: gains, losses, noise, what is missing, and what files may hold.
#include "apps/bench/results/compare.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

namespace unet::bench::compare_test {

namespace {

constexpr double kNoise = 0.01;

Point point_of(const std::string& path, double p50, const std::string& unit = "ns") {
  Point point;
  point.bench = point.metric = "rtt";
  point.path = path;
  point.size = 8;
  point.unit = unit;
  point.p50 = p50;
  point.ratio = NAN;
  return point;
}

Point ratio_of(const std::string& path, double p50, double ratio, const std::string& baseline) {
  Point point = point_of(path, p50);
  point.ratio = ratio;
  point.baseline = baseline;
  return point;
}

// One run for each value.
Runs runs_of(const std::vector<double>& values, const std::string& unit = "ns", const std::string& path = "local") {
  Runs runs;
  for (const double value : values) runs.push_back({point_of(path, value, unit)});
  return runs;
}

Change only_row(const Runs& before, const Runs& after, double noise = kNoise) {
  const Comparison comparison = compare(before, after, noise);
  REQUIRE(comparison.rows.size() == 1);
  return comparison.rows.front();
}

const std::vector<double> kHundred = {100, 101, 99, 100, 102};
const std::vector<double> kMore = {110, 111, 109, 110, 112};

}  // namespace

TEST_CASE("compare: a clear loss, a clear gain, and noise") {
  const Change loss = only_row(runs_of(kHundred), runs_of(kMore));
  CHECK(loss.verdict == Verdict::slower);
  CHECK(loss.name == "rtt local 8");
  CHECK(loss.change == Approx(1.1));
  CHECK(loss.interval.low > 1.06);
  CHECK(loss.interval.low <= loss.change);
  CHECK(loss.interval.high >= loss.change);
  CHECK(loss.interval.high < 1.14);
  CHECK(only_row(runs_of(kMore), runs_of(kHundred)).verdict == Verdict::faster);
  CHECK(only_row(runs_of(kHundred), runs_of({100, 99, 101, 102, 98})).verdict == Verdict::same);
  CHECK(only_row(runs_of({100, 130, 90, 120, 95}), runs_of({125, 95, 131, 92, 122})).verdict == Verdict::same);
  CHECK(only_row(runs_of(kHundred), runs_of(kMore), 0.15).verdict == Verdict::same);  // --noise 15
}

TEST_CASE("compare: the unit says what is better") {
  for (const char* const unit : {"ns", "ns/KiB", "s/GB", "%", "B"}) {
    CHECK(only_row(runs_of(kHundred, unit), runs_of(kMore, unit)).verdict == Verdict::slower);
  }
  for (const char* const unit : {"GB/s", "msg/s", "conn/s", "req/s", "words/s"}) {
    CHECK(only_row(runs_of(kHundred, unit), runs_of(kMore, unit)).verdict == Verdict::faster);
    CHECK(only_row(runs_of(kMore, unit), runs_of(kHundred, unit)).verdict == Verdict::slower);
  }
  CHECK(only_row(runs_of(kHundred, "apples"), runs_of(kMore, "apples")).verdict == Verdict::moved);
  Runs before = runs_of(kHundred, "%"), after = runs_of(kMore, "%");
  for (Runs* const runs : {&before, &after}) {
    for (auto& run : *runs) run.front().metric = "share";
  }
  CHECK(only_row(before, after).verdict == Verdict::moved);
}

TEST_CASE("compare: a row has no verdict with fewer than three figures on a side") {
  const Change two = only_row(runs_of({100, 101}), runs_of(kMore));
  CHECK(two.verdict == Verdict::unknown);
  CHECK(two.change == Approx(110 / 100.5));
  CHECK(std::isnan(two.interval.low));
  CHECK(only_row(runs_of(kHundred), runs_of({110, NAN, 111, NAN})).verdict == Verdict::unknown);
  CHECK(only_row(runs_of(kHundred), runs_of({110, NAN, 111, 110})).verdict == Verdict::slower);
  const Change fresh = only_row(runs_of({NAN, NAN, NAN}), runs_of(kHundred));
  CHECK(fresh.verdict == Verdict::unknown);
  CHECK(fresh.old_text == "-");
  CHECK(fresh.new_text == "100 ns");
  const Comparison comparison = compare(runs_of({NAN, NAN, NAN}), runs_of(kHundred), kNoise);
  CHECK(to_text(comparison, {}).rfind("1 row without figures on a side not shown.\n", 0) == 0);
  CHECK(to_text(comparison, {.old_files = {}, .new_files = {}, .all = true}).find("rtt local 8") != std::string::npos);
}

TEST_CASE("compare: a row of ours whose figures stopped fails, and so does a comparison without any verdict") {
  const auto last_line = [](const Comparison& comparison) {
    const std::string text = to_text(comparison, {});
    return text.substr(text.rfind('\n', text.size() - 2) + 1);
  };
  CHECK(conclusion_of(compare(runs_of(kHundred), runs_of(kHundred), kNoise)) == Conclusion::passed);
  CHECK(conclusion_of(compare(runs_of(kHundred), runs_of(kMore), kNoise)) == Conclusion::failed);
  const Comparison dead = compare(runs_of(kHundred), runs_of({NAN, NAN, NAN}), kNoise);
  REQUIRE(dead.rows.size() == 1);
  CHECK(dead.rows.front().verdict == Verdict::gone);
  CHECK(dead.rows.front().old_text == "100 ns");
  CHECK(dead.rows.front().new_text == "-");
  CHECK(conclusion_of(dead) == Conclusion::undecided);
  CHECK(last_line(dead) == "Nothing is known: no row of ours has figures in 3 files of each side, and 1 row of ours has figures only in "
                           "the old files.\n");
  CHECK(conclusion_of(compare({}, {}, kNoise)) == Conclusion::undecided);
  CHECK(conclusion_of(compare(runs_of({100, 100}), runs_of(kMore), kNoise)) == Conclusion::undecided);
  const Runs kernel = runs_of(kHundred, "ns", "kernel-tcp");
  CHECK(conclusion_of(compare(kernel, kernel, kNoise)) == Conclusion::undecided);
  // One row goes on; of the others one has no record, one has no figures, and one is the kernel's.
  Runs before, after;
  for (const double value : kHundred) {
    before.push_back({point_of("local", value), point_of("shared", value), point_of("emulated", value), point_of("kernel-udp", value)});
    after.push_back({point_of("local", value), point_of("shared", NAN), point_of("kernel-udp", NAN)});
  }
  const Comparison partly = compare(before, after, kNoise);
  CHECK(conclusion_of(partly) == Conclusion::failed);
  CHECK(count_of(partly, Verdict::gone) == 2);
  CHECK(partly.only_old.empty());
  CHECK(to_text(partly, {}).find("rtt emulated 8") != std::string::npos);
  CHECK(last_line(partly) == "Nothing became slower, but 2 rows of ours have figures only in the old files: 0 faster, 0 moved, 1 the same, "
                             "1 unknown.\n");
  for (auto& run : after) run.front().p50 *= 2;
  const std::string slower = last_line(compare(before, after, kNoise));
  CHECK(slower.rfind("1 row became slower, and 2 rows of ours have figures only in the old files; ", 0) == 0);
}

TEST_CASE("compare: a figure of 0 is a figure") {
  const std::vector<double> none = {0, 0, 0}, some = {5, 6, 5};
  const Change idle = only_row(runs_of(some, "%"), runs_of(none, "%"));
  CHECK(idle.verdict == Verdict::faster);
  CHECK(idle.change == 0);
  CHECK(idle.new_text == "0.000 %");
  CHECK(only_row(runs_of(none, "%"), runs_of(some, "%")).verdict == Verdict::slower);
  CHECK(std::isinf(only_row(runs_of(none, "%"), runs_of(some, "%")).change));
  CHECK(only_row(runs_of(some, "GB/s"), runs_of(none, "GB/s")).verdict == Verdict::slower);
  CHECK(only_row(runs_of(none, "GB/s"), runs_of(some, "GB/s")).verdict == Verdict::faster);
  const Change equal = only_row(runs_of(none, "%"), runs_of(none, "%"));
  CHECK(equal.verdict == Verdict::same);
  CHECK(equal.change == 1);
}

TEST_CASE("compare: a ratio to the limit hides the machine, and a ratio to a path of ours is not used") {
  // The machine is twice as slow in the new runs; both paths take twice the time, and the limit, too.
  Runs before, after;
  for (const double value : kHundred) {
    before.push_back({ratio_of("local", value, value / 50, "limit-pingpong")});
    after.push_back({ratio_of("local", 2 * value, value / 50, "limit-pingpong")});
  }
  const Change row = only_row(before, after);
  CHECK(row.verdict == Verdict::same);
  CHECK(row.reference == "limit-pingpong");
  CHECK(row.old_text == "100 ns, 2.00 x");
  CHECK(row.new_text == "200 ns, 2.00 x");
  for (Runs* const runs : {&before, &after}) {
    for (auto& run : *runs) run.front().baseline = "alone";
  }
  CHECK(only_row(before, after).verdict == Verdict::slower);
  CHECK(only_row(before, after).reference.empty());
  // A layer has a record for each baseline, and is one row.
  for (Runs* const runs : {&before, &after}) {
    for (auto& run : *runs) run.push_back(ratio_of("local", run.front().p50, 2, "kernel-tcp"));
  }
  CHECK(only_row(before, after).reference == "kernel-tcp");
  after.resize(3);
  after.front().pop_back();  // the reference was not measured there
  CHECK(only_row(before, after).reference.empty());
}

TEST_CASE("compare: of several references of one row, bare drivers and limits come before the kernel") {
  const auto runs_over = [](const std::vector<std::string>& references) {
    Runs runs;
    for (const double value : kHundred) {
      runs.emplace_back();
      for (const std::string& reference : references) runs.back().push_back(ratio_of("local", value, value / 50, reference));
    }
    return runs;
  };
  const auto reference_of = [&](const std::vector<std::string>& references) {
    return only_row(runs_over(references), runs_over(references)).reference;
  };
  CHECK(reference_of({"kernel-tcp", "limit-pingpong", "raw-veth"}) == "raw-veth");
  CHECK(reference_of({"raw-veth", "kernel-tcp"}) == "raw-veth");
  CHECK(reference_of({"kernel-tcp", "limit-pingpong"}) == "limit-pingpong");
  CHECK(reference_of({"one rank", "kernel-tcp"}) == "kernel-tcp");
}

TEST_CASE("compare: the family of a path says whether it is ours") {
  for (const char* const path : {"local", "shared-2p", "programs-local", "programs-own-veth", "direct", "one rank"}) {
    INFO(path);
    CHECK(family_of(path) == Family::ours);
  }
  CHECK(family_of("mpi") == Family::other);
  CHECK(family_of("serial") == Family::limit);
  CHECK(family_of("limit-copies") == Family::limit);
  CHECK(family_of("raw-veth") == Family::raw);
  CHECK(family_of("kernel-tcp") == Family::kernel);
  CHECK(family_of("programs-kernel-loopback") == Family::kernel);
  for (const char* const path : {"mpi", "programs-kernel-loopback"}) {
    const Change row = only_row(runs_of(kHundred, "ns", path), runs_of(kMore, "ns", path));
    CHECK_FALSE(row.ours);
    CHECK(row.verdict == Verdict::moved);
  }
}

TEST_CASE("compare: the speed-up of a parallel program is a time over the serial one's") {
  Runs before, after;
  for (const double speed_up : {1.5, 1.51, 1.49}) {
    before.push_back({ratio_of("direct", 100, speed_up, "serial")});
    after.push_back({ratio_of("direct", 100, speed_up * 1.2, "serial")});
    before.back().front().bench = after.back().front().bench = "kernels";
  }
  const Change row = only_row(before, after);
  CHECK(row.verdict == Verdict::faster);
  CHECK(row.change == Approx(1 / 1.2));
}

TEST_CASE("compare: rows without our code are a control") {
  const Runs before = runs_of(kHundred, "ns", "kernel-tcp"), after = runs_of(kMore, "ns", "kernel-tcp");
  CHECK(only_row(before, after).verdict == Verdict::moved);
  const std::string text = to_text(compare(before, after, kNoise), {});
  CHECK(text.find("Control: 1 of 1 row without code of ours moved.") != std::string::npos);
  CHECK(text.find("Nothing is known") != std::string::npos);
}

TEST_CASE("compare: the worst comes first, equal rows are counted, and missing ones are named") {
  Runs before, after;
  for (const double value : kHundred) {
    before.push_back({point_of("equal", value), point_of("gain", value), point_of("loss", value), point_of("worst", value)});
    after.push_back({point_of("equal", value), point_of("gain", value / 2), point_of("loss", value * 1.2), point_of("worst", value * 2)});
    before.back().push_back(point_of("kernel-old", value));
    after.back().push_back(point_of("fresh", value));
  }
  const Comparison comparison = compare(before, after, kNoise);
  std::vector<std::string> names;
  for (const Change& row : comparison.rows) names.push_back(row.name);
  CHECK(names == std::vector<std::string>{"rtt worst 8", "rtt loss 8", "rtt gain 8", "rtt equal 8"});
  CHECK(comparison.only_old == std::vector<std::string>{"rtt kernel-old 8"});
  CHECK(comparison.only_new == std::vector<std::string>{"rtt fresh 8"});
  CompareOptions options;
  const std::string text = to_text(comparison, options);
  CHECK(text.find("rtt equal 8") == std::string::npos);
  CHECK(text.find("+100.0 %") != std::string::npos);
  CHECK(text.find("1 row with the verdict `same` not shown") != std::string::npos);
  CHECK(text.find("Only in the old files: rtt kernel-old 8.\nOnly in the new files: rtt fresh 8.\n") != std::string::npos);
  CHECK(text.find("2 rows became slower; 1 faster, 0 moved, 1 the same, 0 unknown.") != std::string::npos);
  options.all = true;
  options.table = TableStyle::markdown;
  CHECK(to_text(comparison, options).find("| rtt equal 8 |") != std::string::npos);
}

TEST_CASE("compare: machines that differ, and commits that differ or do not, are said") {
  Runs before = runs_of({1, 2}), after = runs_of({1, 2});
  before[0].front().origin = before[1].front().origin = {"a machine", "a day", "aaa"};
  after[0].front().origin = {"a machine", "a day", "aaa"};
  after[1].front().origin = {"another", "a day", "bbb"};
  CHECK(compare(before, after, kNoise).notes ==
        std::vector<std::string>{"The files come from several machines: a machine; another.",
                                 "The new files come from several commits: aaa; bbb.", "Both sides have files of commit aaa."});
  after[0].front().origin = after[1].front().origin = {"a machine", "another day", "ccc"};
  CHECK(compare(before, after, kNoise).notes.empty());
}

TEST_CASE("compare: files are read, and malformed ones are named") {
  const std::string directory = "/tmp/unet-compare-" + std::to_string(getpid());
  std::filesystem::create_directory(directory);
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(directory + "/" + name) << text;
    return directory + "/" + name;
  };
  Record record;
  record.bench = record.metric = "rtt";
  record.path = "local";
  record.unit = "ns";
  record.summary = {.p50 = 100, .p99 = {}, .p999 = {}, .mean = 100, .samples = 9};
  const std::vector<Record> records{record};
  const std::string good = write("good.json", to_json(records)), bad = write("bad.json", "[{}]");
  record.path = "shared";
  const std::string other = write("other.json", to_json({record}));
  CompareOptions options;
  options.old_files = options.new_files = {good, write("good2.json", to_json(records)), write("good3.json", to_json(records))};
  const auto same = compare_files(options);
  options.new_files.push_back(bad);
  const auto malformed = compare_files(options);
  options.new_files = {good, other, directory + "/./good.json"};
  const auto twice = compare_files(options);
  options.new_files = {other};
  const auto apart = compare_files(options);
  const std::string run = to_json(records);
  options.old_files = {write("report.json", R"({"report": 1, "rounds": [)" + run + "," + run + "," + run + "]}")};
  options.new_files = {good, directory + "/good2.json", directory + "/good3.json"};
  const auto rounds = compare_files(options);
  options.old_files = {write("old_report.json", R"({"report": 0, "rounds": []})")};
  const auto old_format = compare_files(options);
  options.old_files = {write("no_rounds.json", R"({"report": 1})")};
  const auto no_rounds = compare_files(options);
  std::filesystem::remove_all(directory);
  REQUIRE(same);
  CHECK(count_of(*same, Verdict::same) == 1);
  REQUIRE_FALSE(malformed);
  CHECK(malformed.error().text.find("bad.json") != std::string::npos);
  REQUIRE_FALSE(twice);
  CHECK(twice.error().text.find("good.json is named twice") != std::string::npos);
  REQUIRE(rounds);  // each round of a report is a run
  CHECK(count_of(*rounds, Verdict::same) == 1);
  CHECK(to_json(*rounds).find("\"verdict\": \"same\"") != std::string::npos);
  REQUIRE_FALSE(old_format);
  CHECK(old_format.error().text.find("format 0") != std::string::npos);
  CHECK_FALSE(no_rounds);
  REQUIRE(apart);  // the sides have no row in common
  CHECK(conclusion_of(*apart) == Conclusion::undecided);
}

}  // namespace unet::bench::compare_test
