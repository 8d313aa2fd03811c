// rates_test.cc - rates and their order, from reports with known numbers.
#include "apps/unetctl/rates.h"

#include <catch2/catch.hpp>
#include <vector>

namespace unet::unetctl::rates_test {
namespace {

using nlohmann::json;

json endpoint(unsigned id, const char* name, unsigned pid, unsigned sent, unsigned received, unsigned drops) {
  return {{"endpoint", id},
          {"client", id},
          {"name", name},
          {"pid", pid},
          {"uid", 1000u},
          {"counters",
           {{"sent_messages", sent}, {"sent_bytes", 100 * sent}, {"received_messages", received}, {"received_bytes", 8 * received}}},
          {"drops", {{"no_free_buffer", drops}, {"too_long", 0u}}}};
}

json report(uint64_t at_ns, const std::vector<json>& endpoints, unsigned bad_crc = 0) {
  return {{"host", "alpha"},
          {"monotonic_ns", at_ns},
          {"channels", json::array()},
          {"counters", {{"drops", {{"bad_crc", bad_crc}, {"bad_version", 0u}}}}},
          {"endpoints", endpoints}};
}

std::string order(std::vector<EndpointRate> endpoints, Sort by) {
  sort(endpoints, by);
  std::string names;
  for (const EndpointRate& e : endpoints) names += e.name.empty() ? "-" : e.name;
  return names;
}

}  // namespace

TEST_CASE("rates are per second of the time between the reports") {
  const json before = report(1'000'000'000, {endpoint(0, "a", 10, 100, 50, 4)}, 2);
  const json now = report(3'000'000'000, {endpoint(0, "a", 10, 300, 60, 10)}, 2);
  const Rates rates = rates_between(before, now);
  CHECK(rates.seconds == Approx(2));
  REQUIRE(rates.endpoints.size() == 1);
  CHECK(rates.endpoints[0].sent_messages == Approx(100));
  CHECK(rates.endpoints[0].sent_bytes == Approx(10'000));
  CHECK(rates.endpoints[0].received_messages == Approx(5));
  CHECK(rates.endpoints[0].received_bytes == Approx(40));
  CHECK(rates.endpoints[0].drops == Approx(3));
  REQUIRE(rates.drops.size() == 2);  // counters that are zero are left out
  CHECK(rates.drops[0].of == "NI");
  CHECK(rates.drops[0].name == "bad_crc");
  CHECK(rates.drops[0].rate == 0);
  CHECK(rates.drops[0].total == 2);
  CHECK(rates.drops[1].of == "endpoint 0 (a)");
  CHECK(rates.drops[1].total == 10);
}

TEST_CASE("an endpoint that is new, or has another's number, began at nothing") {
  const json before = report(0, {endpoint(0, "a", 10, 100, 0, 0), endpoint(1, "b", 11, 100, 0, 0)});
  const json now = report(1'000'000'000, {endpoint(0, "c", 12, 150, 0, 0), endpoint(1, "b", 11, 40, 0, 0), endpoint(2, "d", 13, 7, 0, 0)});
  const Rates rates = rates_between(before, now);
  REQUIRE(rates.endpoints.size() == 3);
  CHECK(rates.endpoints[0].sent_messages == Approx(150));  // another process
  CHECK(rates.endpoints[1].sent_messages == Approx(40));   // the same process, counters from the start
  CHECK(rates.endpoints[2].sent_messages == Approx(7));
}

TEST_CASE("two reports of the same moment, or with parts missing, are no trouble") {
  const json one = report(5, {endpoint(0, "a", 1, 3, 3, 0)});
  CHECK(rates_between(one, one).endpoints.at(0).sent_messages == 0);
  json bare = one;
  bare["counters"] = json::object();  // for a user that may not see the NI's counters
  CHECK(rates_between(bare, bare).drops.empty());
}

TEST_CASE("several engines have a table, one has none") {
  json before = report(1'000'000'000, {}), now = report(3'000'000'000, {});
  CHECK(picture(now, rates_between(before, now), Sort::name).find("LINKED/S") == std::string::npos);
  before["engines"] = json::parse(R"([{"engine": 0, "counters": {"received_frames": 10}}, {"engine": 1, "counters": {}}])");
  now["engines"] = json::parse(R"([{"engine": 0, "counters": {"received_frames": 30}}, {"engine": 1, "counters": {"linked_frames": 8}}])");
  const Rates rates = rates_between(before, now);
  REQUIRE(rates.engines.size() == 2);
  CHECK(rates.engines[0].received_frames * rates.seconds == Approx(20));
  CHECK(rates.engines[1].linked_frames * rates.seconds == Approx(8));
  CHECK(picture(now, rates, Sort::name).find("LINKED/S") != std::string::npos);
}

TEST_CASE("messages of local channels are added to their endpoints, both ways") {
  json before = report(1'000'000'000, {endpoint(3, "a", 10, 0, 0, 0)}), now = report(3'000'000'000, {endpoint(3, "a", 10, 0, 0, 0)});
  before["channels"] = json::parse(R"([{"endpoint": 3, "channel": 0, "counters": {"sent_messages": 100, "received_messages": 10}}])");
  now["channels"] = json::parse(R"([{"endpoint": 3, "channel": 0, "counters": {"sent_messages": 300, "received_messages": 30}},
                                    {"endpoint": 3, "channel": 1, "counters": {"received_messages": 80, "received_bytes": 800}}])");
  const Rates rates = rates_between(before, now);
  CHECK(rates.endpoints.at(0).local_messages == Approx(150));
  CHECK(rates.endpoints.at(0).local_bytes == Approx(400));
  before["endpoints"][0]["pid"] = 9u;  // another endpoint had the number
  CHECK(rates_between(before, now).endpoints.at(0).local_messages == Approx(205));
}

TEST_CASE("programs, ports and the busy share of engines") {
  json before = report(1'000'000'000, {}), now = report(3'000'000'000, {endpoint(0, "a", 10, 0, 0, 0)});
  now["clients"] = json::parse(R"([{"client": 0, "program": "server"}])");
  before["engines"] = json::parse(R"([{"engine": 0, "counters": {"idle_ns": 1000000000}}])");
  now["engines"] = json::parse(R"([{"engine": 0, "counters": {"idle_ns": 2500000000}}])");
  before["ports"] = json::parse(R"([{"port": 0, "counters": {"rx_frames": 1}}])");
  now["ports"] = json::parse(R"([{"port": 0, "link": "up", "counters": {"rx_frames": 21, "tx_bytes": 8}}])");
  const Rates rates = rates_between(before, now);
  CHECK(rates.endpoints.at(0).program == "server");
  CHECK(rates.engines.at(0).busy == Approx(0.25));
  CHECK(rates.ports.at(0).received_frames == Approx(10));
  CHECK(rates.ports.at(0).sent_bytes == Approx(4));
}

TEST_CASE("ends of local channels are named, as their messages are not counted") {
  json now = report(1'000'000'000, {});
  CHECK(picture(now, rates_between(now, now), Sort::name).find("local channels") == std::string::npos);
  now["channels"] = json::parse(R"([{"path": "local"}, {"path": "ni"}, {"path": "local"}])");
  CHECK(picture(now, rates_between(now, now), Sort::name).find("2 ends of local channels") != std::string::npos);
}

TEST_CASE("each order") {
  const json before = report(0, {endpoint(0, "b", 1, 0, 0, 0), endpoint(1, "", 1, 0, 0, 0), endpoint(2, "a", 1, 0, 0, 0)});
  const json now = report(1'000'000'000, {endpoint(0, "b", 1, 10, 0, 2), endpoint(1, "", 1, 0, 30, 1), endpoint(2, "a", 1, 0, 20, 0)});
  const auto endpoints = rates_between(before, now).endpoints;
  CHECK(order(endpoints, Sort::messages) == "-ab");
  CHECK(order(endpoints, Sort::bytes) == "b-a");
  CHECK(order(endpoints, Sort::drops) == "b-a");
  CHECK(order(endpoints, Sort::name) == "ab-");  // without a name: last
  const std::string text = picture(now, rates_between(before, now), Sort::name);
  CHECK(text.find("host alpha: 3 endpoints, 0 channels") == 0);
  CHECK(text.find("no_free_buffer") != std::string::npos);
}

}  // namespace unet::unetctl::rates_test
