// display_test.cc - what unetctl top draws: short numbers, programs, history, any width.
#include "apps/unetctl/display.h"

#include <catch2/catch.hpp>

namespace unet::unetctl::display_test {
namespace {

using nlohmann::json;

const json kNow{{"host", "alpha"}, {"channels", json::array()}};

EndpointRate endpoint(uint64_t id, const char* program, uint64_t pid, double sent) {
  EndpointRate rate;
  rate.endpoint = id;
  rate.name = "name" + std::to_string(id);
  rate.program = program;
  rate.pid = pid;
  rate.sent_messages = sent;
  return rate;
}

Rates some_rates() {
  Rates rates;
  rates.endpoints = {endpoint(1, "small", 7, 10), endpoint(2, "large", 8, 3000), endpoint(3, "large", 9, 4000)};
  rates.engines = {{.engine = 0, .busy = 0.375, .received_frames = 1e6}};
  rates.ports = {{.port = 0, .address = "02:00:00:00:00:01", .link = "up", .received_bytes = 2.5e9}};
  rates.drops = {{"endpoint 1", "too_long", 3, 12345}};
  return rates;
}

}  // namespace

TEST_CASE("numbers have three digits and a unit") {
  CHECK(short_number(0) == "0");
  CHECK(short_number(7) == "7");
  CHECK(short_number(1.5) == "1.50");
  CHECK(short_number(12.3) == "12");
  CHECK(short_number(999) == "999");
  CHECK(short_number(999.6) == "1.00k");
  CHECK(short_number(12'345) == "12.3k");
  CHECK(short_number(456e6) == "456M");
  CHECK(short_number(7.25e9) == "7.25G");
  CHECK(short_number(5e15) == "5000T");
}

TEST_CASE("programs have the sums of their endpoints, largest first") {
  const std::string text = display(kNow, some_rates(), {}, {.columns = 200});
  CHECK(text.find("large") < text.find("small"));
  CHECK(text.find("7.00k") != std::string::npos);
  CHECK(text.find("38%") != std::string::npos);
  CHECK(text.find("2.50G") != std::string::npos);
  CHECK(text.find("too_long") != std::string::npos);
  CHECK(text.find("name1") == std::string::npos);
  const std::string endpoints = display(kNow, some_rates(), {}, {.sort = Sort::name, .programs = false, .columns = 200});
  CHECK(endpoints.find("name1") < endpoints.find("name2"));
}

TEST_CASE("the history has the last intervals of each, relative to its greatest") {
  History history;
  Rates rates = some_rates();
  for (const double sent : {0.0, 500.0, 1000.0}) {
    rates.endpoints[0].sent_messages = sent;
    history.add(rates);
  }
  CHECK(history.of_program("small") == " =#");
  CHECK(history.of_endpoint(rates.endpoints[1]) == "###");
  for (int i = 0; i < 20; ++i) history.add(rates);
  CHECK(history.of_program("small") == "############");
  rates.endpoints.pop_back();
  rates.endpoints.pop_back();
  history.add(rates);
  CHECK(history.of_program("large").empty());
}

TEST_CASE("long names are cut, and the rates stay on the screen") {
  Rates rates = some_rates();
  rates.seconds = 1;
  rates.endpoints[0].name = rates.endpoints[0].program = std::string(19, 'a') + "\u00e4" + std::string(200, 'b');
  rates.drops[0].of = "endpoint 1 (" + rates.endpoints[0].name + ")";
  for (const bool programs : {true, false}) {
    const std::string text = display(kNow, rates, {}, {.programs = programs, .columns = 80});
    CHECK(text.find(std::string(19, 'a') + " ") != std::string::npos);
    CHECK(text.find("SENT B/S  RECEIVED/S  RECEIVED B/S") != std::string::npos);
    CHECK(text.find("endpoint 1 (aaa") != std::string::npos);
  }
  CHECK(display(kNow, rates, {}, {.columns = 5}).find("\naaaaa\n") != std::string::npos);
}

TEST_CASE("the first picture says when the rates come") {
  Rates rates;
  const DisplayOptions options{.interval = 10, .columns = 200};
  CHECK(display(kNow, rates, {}, options).find("host alpha: the first rates come in 10 s") == 0);
  rates.seconds = 10;
  CHECK(display(kNow, rates, {}, options).find("host alpha: 0 endpoints, 0 channels") == 0);
}

TEST_CASE("no line is longer than the terminal has columns") {
  for (const bool programs : {true, false}) {
    for (size_t columns = 1; columns < 150; ++columns) {
      const std::string text = display(kNow, some_rates(), {}, {.programs = programs, .columns = columns});
      for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) REQUIRE(text.find('\n', at) - at <= columns);
    }
  }
}

}  // namespace unet::unetctl::display_test
