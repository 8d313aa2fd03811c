// report_test.cc - the JSON that others read, and the tables people read.
#include "apps/bench/results/report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace unet::bench::report_test {

namespace {

Record record_of(const std::string& path, uint32_t size, double p50, std::optional<double> ratio) {
  Record record;
  record.bench = "rtt";
  record.path = path;
  record.size = size;
  record.metric = "rtt";
  record.unit = "ns";
  record.summary = {p50, p50 * 2, p50 * 3, p50 + 1, 1000};
  record.limit = 100;
  record.ratio = ratio;
  record.baseline = "limit-pingpong";
  record.command = "unet-bench run rtt";
  record.slices = 10;
  record.dropped = 2;
  return record;
}

}  // namespace

TEST_CASE("report: JSON is a list of flat records with every field") {
  const auto list = nlohmann::json::parse(to_json({record_of("local", 48, 130, 1.3), record_of("kernel-udp", 48, 6400, std::nullopt)}));
  REQUIRE(list.is_array());
  REQUIRE(list.size() == 2);
  for (const char* field : {"bench", "path", "size", "metric", "unit", "p50", "p99", "p999", "mean", "samples", "limit", "ratio",
                            "baseline", "command", "timeline"}) {
    CAPTURE(field);
    CHECK(list[0].contains(field));
  }
  for (const auto& [key, value] : list[0].items()) {
    CAPTURE(key);
    CHECK(value.is_primitive());
  }
  CHECK(list[0]["path"] == "local");
  CHECK(list[0]["size"] == 48);
  CHECK(list[0]["p99"] == 260.0);
  CHECK(list[0]["ratio"] == 1.3);
  CHECK(list[1]["ratio"].is_null());
  CHECK(nlohmann::json::parse(to_json(std::vector<Record>{})).empty());
}

TEST_CASE("report: processor time is of each side, and of services where there are any") {
  Record tcp = record_of("tcp-local", 64, 300, 3), stream = record_of("tcp-local", 64, 4, 8);
  tcp.cpu = {.a = 150, .b = 160, .services = 0};
  stream.unit = "GB/s";
  stream.cpu = {.a = 0.1, .b = 0.2, .services = 0.05};
  const auto list = nlohmann::json::parse(to_json({tcp, stream, record_of("limit-pingpong", 64, 100, 1)}));
  CHECK(list[0]["cpu"] == 310.0);
  CHECK(list[0]["cpu_a"] == 150.0);
  CHECK(list[0]["cpu_b"] == 160.0);
  CHECK(list[1]["cpu_services"] == 0.05);
  for (const char* field : {"cpu", "cpu_a", "cpu_b", "cpu_services"}) CHECK(list[2][field].is_null());
  const std::string title = "rtt: processor time of side A + side B + services\n";
  const std::string rows = "  path                  64 B\n  tcp-local  150 ns + 160 ns\n";
  CHECK(to_tables({tcp}, TableStyle::text).find(title + rows) != std::string::npos);
  CHECK(to_tables({stream}, TableStyle::text).find("100 ms/GB + 200 ms/GB + 50.0 ms/GB") != std::string::npos);
}

TEST_CASE("report: ratios come first, columns are sizes, absent figures are dashes") {
  const std::string text = to_tables(
      {record_of("local", 8, 120, 1.2), record_of("kernel-udp", 8, 6400, 64), record_of("local", 48, 130, 1.3)}, TableStyle::text);
  const size_t ratios = text.find("rtt: ratio to limit-pingpong\n");
  REQUIRE(ratios == 0);
  CHECK(text.find("rtt: p50") > ratios);
  CHECK(text.find("  path         8 B  48 B\n  local       1.20  1.30\n  kernel-udp  64.0     -\n") != std::string::npos);
  CHECK(text.find("6.40 us") != std::string::npos);
  CHECK(text.find("Of 30 slices 6 were dropped") != std::string::npos);
}

TEST_CASE("report: a path that kept no slice has no figures") {
  Record nothing = record_of("local", 8, 0, std::nullopt);
  nothing.summary = {};
  const std::string text = to_tables({record_of("limit-pingpong", 8, 100, 1), nothing}, TableStyle::text);
  CHECK(text.find("  local                -\n") != std::string::npos);
  CHECK(text.find("0 ns") == text.find("100 ns") + 2);
}

TEST_CASE("report: too few slices stand as their number, few samples beside the figure") {
  Record one = record_of("local", 8, 336, 3.36), job = record_of("direct", 8, 200, std::nullopt);
  one.slices = 1;
  one.dropped = 0;
  one.remove_figures();
  job.summary = {200, std::nullopt, std::nullopt, 200, 1};
  const std::string text = to_tables({one, job}, TableStyle::text);
  CHECK(text.find("3.36") == std::string::npos);
  CHECK(text.find("336") == std::string::npos);
  CHECK(text.find("n=1\n") != std::string::npos);
  CHECK(text.find("200 ns (n=1)") != std::string::npos);
  CHECK(text.find("p99") == std::string::npos);  // nothing has that many samples
  CHECK(text.find("n=0, 1 or 2 stands for a figure with fewer than 3 slices") != std::string::npos);
}

TEST_CASE("report: the short table has median and ratio in one cell") {
  Record one = record_of("shared", 8, 336, 3.36);
  one.remove_figures();
  const std::string text = to_short_table({record_of("limit-pingpong", 8, 100, 1), record_of("local", 8, 120, 1.2), one}, TableStyle::text);
  CHECK(text.find("rtt: median, and ratio to limit-pingpong\n") == 0);
  CHECK(text.find("local           120 ns, 1.20 x\n") != std::string::npos);
  CHECK(text.find("n=8\n") != std::string::npos);
}

TEST_CASE("report: JSON says where, when and from which commit") {
  const auto list = nlohmann::json::parse(to_json({record_of("local", 8, 100, 1)}, {.machine = "a", .date = "b", .commit = "c"}));
  CHECK(list[0]["machine"] == "a");
  CHECK(list[0]["date"] == "b");
  CHECK(list[0]["commit"] == "c");
}

TEST_CASE("report: figures that could not be measured are null in JSON") {
  Record nothing = record_of("local", 8, 0, std::nullopt);
  nothing.summary = {};
  const auto list = nlohmann::json::parse(to_json({nothing}));
  for (const char* field : {"p50", "p99", "p999", "mean", "limit", "ratio"}) {
    CAPTURE(field);
    CHECK(list[0][field].is_null());
  }
  CHECK(list[0]["samples"] == 0);
}

TEST_CASE("report: ratios to different kinds of baseline stand in tables of their own") {
  Record memif = record_of("memif", 8, 600, 1.05);
  memif.baseline = "raw-memif";
  const std::string text = to_tables({record_of("local", 8, 120, 1.2), memif}, TableStyle::text);
  CHECK(text.find("rtt: ratio to limit-pingpong\n  path    8 B\n  local  1.20\n") != std::string::npos);
  CHECK(text.find("rtt: ratio to the bare driver on the same wire: raw-memif\n  path    8 B\n  memif  1.05\n") != std::string::npos);
}

TEST_CASE("report: puts over a wire stand beside the messages of their path") {
  Record put = record_of("memif", 4096, 5, 1.2);
  Record messages = record_of("memif", 4096, 4, std::nullopt);
  put.baseline = messages.metric = kOwnMessages;
  messages.baseline = "";
  put.unit = messages.unit = "GB/s";
  const std::string text = to_tables({put, messages}, TableStyle::text);
  CHECK(text.find("ratio to messages of the same size over the same path\n  path   4 KiB\n  memif   1.20\n\n") != std::string::npos);
  CHECK(text.find("  memif            5.00 GB/s\n  memif, messages  4.00 GB/s\n") != std::string::npos);
}

TEST_CASE("report: the columns of connections are their steps") {
  std::vector<Record> records;
  for (const char* step : {"create", "total"}) {
    records.push_back(record_of("local", 0, step[0] == 'c' ? 70'000 : 150'000, 7));
    records.back().bench = "connect";
    records.back().metric = step;
    records.back().baseline = "kernel-unix";
  }
  const std::string text = to_tables(records, TableStyle::text);
  CHECK(text.find("connect: ratio to kernel-unix\n  path   create  total\n  local    7.00   7.00\n") == 0);
  CHECK(text.find("connect: p50\n  path    create   total\n  local  70.0 us  150 us\n") != std::string::npos);
}

TEST_CASE("report: a layer stands beside what it stands on, category by category") {
  std::vector<Record> records{record_of("local", 8, 120, 1.2)};
  for (const char* const baseline : {"limit-pingpong", "local"}) {
    records.push_back(record_of("am-local", 8, 150, baseline == std::string("local") ? 1.25 : 1.5));
    records.back().metric = std::string("rtt") + kShort;
    records.back().baseline = baseline;
  }
  const std::string text = to_tables(records, TableStyle::text);
  const auto has = [&](const char* table) { return text.find(table) != std::string::npos; };
  CHECK(has("rtt: ratio to limit-pingpong\n  path              8 B\n  local            1.20\n  am-local, short  1.50\n"));
  CHECK(has("rtt: ratio to raw U-Net on the same path: local\n  path              8 B\n  am-local, short  1.25\n"));
}

TEST_CASE("report: kernels stand in tables by what their speed-up is over") {
  std::vector<Record> records;
  for (const char* const baseline : {"serial", "one rank"}) {
    for (const uint32_t ranks : {1u, 2u}) {
      records.push_back(record_of("direct", ranks, 2e6 / ranks, 0.9 * ranks));
      records.back().bench = "kernels";
      records.back().metric = baseline == std::string("serial") ? "cg" : "fft";
      records.back().baseline = baseline;
    }
  }
  const std::string text = to_tables(records, TableStyle::text);
  const auto has = [&](const char* table) { return text.find(table) != std::string::npos; };
  CHECK(has("kernels: speed-up over the serial program\n  path        P = 1  P = 2\n  cg, direct   0.90   1.80\n"));
  CHECK(has("kernels: speed-up over one rank\n  path         P = 1  P = 2\n  fft, direct   0.90   1.80\n"));
}

TEST_CASE("report: senders to one are rows, what became of them columns") {
  std::vector<Record> records;
  for (const uint32_t size : {1500u, 4096u}) {
    records.push_back(record_of("am-sim", size, 12.5, 0.99));
    records.back().bench = "am-incast";
    records.back().metric = "goodput_32_senders";
    records.back().unit = "GB/s";
    records.back().baseline = "the link";
  }
  const std::string text = to_tables(records, TableStyle::text);
  CHECK(text.find("  path        goodput, 1500 B  goodput, 4 KiB\n  32 senders             0.99            0.99\n") != std::string::npos);
}

TEST_CASE("report: markdown") {
  CHECK(render_table({{"path", "8 B"}, {"local", "1.20"}}, TableStyle::markdown) ==
        "| path  |  8 B |\n|---|---:|\n| local | 1.20 |\n");
}

TEST_CASE("report: figures with their units") {
  CHECK(format_value(6.84, "ns") == "6.8 ns");
  CHECK(format_value(104.4, "ns") == "104 ns");
  CHECK(format_value(999.7, "ns") == "1.00 us");
  CHECK(format_value(6400, "ns") == "6.40 us");
  CHECK(format_value(64'200, "ns") == "64.2 us");
  CHECK(format_value(2.5e6, "ns") == "2.50 ms");
  CHECK(format_value(44.03, "GB/s") == "44.0 GB/s");
  CHECK(format_value(15.23e6, "msg/s") == "15.2 M/s");
  CHECK(format_value(0.0213, "%") == "0.021 %");
  CHECK(format_ratio(1.254) == "1.25");
  CHECK(format_ratio(57.34) == "57.3");
  CHECK(format_ratio(412.4) == "412");
  CHECK(format_ratio(0.0032) == "0.0032");
  CHECK(format_ratio(std::nullopt) == "-");
}

}  // namespace unet::bench::report_test
