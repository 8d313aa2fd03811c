// stats_test.cc - the texts for Prometheus and OpenMetrics, byte by byte where a parser is strict, and the JSON object.
#include "apps/unetctl/stats.h"

#include <catch2/catch.hpp>

#include <set>
#include <sstream>

namespace unet::unetctl::stats_test {
namespace {

using nlohmann::json;

json report() {
  return json::parse(R"({
    "host": "alpha", "version": 2, "time_ns": 1700000000123456789,
    "ni": {"pid": 5, "uid": 0, "incarnation": 77, "release": "0.1.0", "draining": true},
    "clients": [{}], "channels": [{}, {}],
    "ports": [{"port": 0, "address": "02:00:00:00:00:01", "counters": {"rx good-packets": 3, "Rx_Good_Packets": 4, "%%": 1}}],
    "counters": {"engine": {"wakeups": 9}, "service": {"requests": 18446744073709551615}, "signalling": {"sent": 0},
                 "drops": {"bad_crc": 2}},
    "endpoints": [
      {"endpoint": 0, "client": 0, "name": "a\\b\"c\nd", "pid": 10, "uid": 1000, "channels": 2,
       "counters": {"sent_messages": 12}, "drops": {"too_long": 1, "no_free_buffer": 0}},
      {"endpoint": 1, "client": 0, "name": "", "pid": 10, "uid": 1000, "channels": 0,
       "counters": {"sent_messages": 0}, "drops": {"too_long": 0, "no_free_buffer": 0}}]})");
}

bool has_line(const std::string& text, const std::string& line) { return ("\n" + text).find("\n" + line + "\n") != std::string::npos; }

}  // namespace

TEST_CASE("samples with escaped labels") {
  const std::string text = stats_prometheus(report());
  CHECK(has_line(text, R"(unet_endpoint_sent_messages_total{endpoint="0",name="a\\b\"c\nd",pid="10",uid="1000"} 12)"));
  CHECK(has_line(text, R"(unet_endpoint_sent_messages_total{endpoint="1",name="",pid="10",uid="1000"} 0)"));
  CHECK(has_line(text, R"(unet_endpoint_drops_total{endpoint="0",name="a\\b\"c\nd",pid="10",uid="1000",reason="too_long"} 1)"));
  CHECK(has_line(text, "unet_ni_drops_total{reason=\"bad_crc\"} 2"));
  CHECK(has_line(text, "unet_engine_wakeups_total 9"));
  CHECK(has_line(text, "unet_service_requests_total 18446744073709551615"));
  CHECK(has_line(text, "unet_channels 2"));
  CHECK(has_line(text, "unet_ni_draining 1"));
  CHECK(has_line(text, R"(unet_ni_info{host="alpha",pid="5",uid="0",release="0.1.0",incarnation="77"} 1)"));
}

TEST_CASE("each engine's counters beside their sums") {
  json with = report();
  with["engines"] = json::parse(R"([{"engine": 0, "counters": {"wakeups": 4}, "drops": {"bad_crc": 2}},
                                    {"engine": 1, "counters": {"wakeups": 5}, "drops": {"bad_crc": 0}}])");
  const std::string text = stats_prometheus(with);
  CHECK(has_line(text, "unet_of_engine_wakeups_total{engine=\"0\"} 4"));
  CHECK(has_line(text, "unet_of_engine_wakeups_total{engine=\"1\"} 5"));
  CHECK(has_line(text, "unet_of_engine_drops_total{engine=\"0\",reason=\"bad_crc\"} 2"));
  CHECK(stats_json(with)["engines"] == with["engines"]);
}

TEST_CASE("a driver's names become snake case, and none stands twice") {
  const std::string text = stats_prometheus(report());
  const std::string labels = R"({port="0",address="02:00:00:00:00:01"})";
  CHECK(text.find("unet_port_rx_good_packets_total" + labels) == text.rfind("unet_port_rx_good_packets_total" + labels));
  CHECK(has_line(text, "unet_port_unnamed_total" + labels + " 1"));
}

TEST_CASE("one HELP and one TYPE before each family's samples") {
  std::istringstream in(stats_prometheus(report()));
  std::set<std::string> helped, typed, samples;
  std::string line, family;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string mark, what, name;
    if (line.rfind("# ", 0) == 0) {
      words >> mark >> what >> name;
      CHECK((what == "HELP" ? helped : typed).insert(name).second);
      CHECK((what == "HELP" || name == family));
      family = name;
    } else {
      CHECK(line.substr(0, line.find_first_of("{ ")) == family);
      CHECK(samples.insert(line.substr(0, line.rfind(' '))).second);
    }
  }
  CHECK(helped == typed);
  CHECK(samples.size() > helped.size());
}

TEST_CASE("OpenMetrics: families without _total, units, times, and an end") {
  json with = report();
  with["counters"]["engine"]["copied_bytes"] = 7;
  const std::string text = stats_openmetrics(with);
  CHECK(has_line(text, "# TYPE unet_engine_copied_bytes counter\n# UNIT unet_engine_copied_bytes bytes\n"
                       "unet_engine_copied_bytes_total 7 1700000000.123457"));
  CHECK(has_line(text, "# TYPE unet_channels gauge\nunet_channels 2 1700000000.123457"));
  CHECK(text.ends_with("\n# EOF\n"));
}

TEST_CASE("the object has everything, and whose it is") {
  const json stats = stats_json(report());
  CHECK(stats["time_ns"] == 1700000000123456789u);
  CHECK(stats["ni"] ==
        json::parse(R"({"host": "alpha", "pid": 5, "uid": 0, "incarnation": 77, "release": "0.1.0", "draining": true, "protocol": 2})"));
  CHECK(stats["counters"]["engine"]["wakeups"] == 9);
  CHECK(stats["drops"]["bad_crc"] == 2);
  CHECK(stats["ports"][0]["counters"]["rx good-packets"] == 3);
  CHECK(stats["endpoints"][0]["drops"]["too_long"] == 1);
  CHECK(stats["endpoints"][1]["counters"]["sent_messages"] == 0);
}

TEST_CASE("who may not see the NI's counters still gets the own ones") {
  json less = report();
  less["counters"] = json::object();
  less["ports"][0].erase("counters");
  CHECK(stats_json(less)["counters"] == json::object());
  CHECK(stats_json(less)["endpoints"].size() == 2);
  const std::string text = stats_prometheus(less);
  CHECK(text.find("unet_engine_") == std::string::npos);
  CHECK(text.find("unet_endpoint_sent_messages_total") != std::string::npos);
}

}  // namespace unet::unetctl::stats_test
