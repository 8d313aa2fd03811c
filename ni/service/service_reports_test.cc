// service_reports_test.cc - reports in parts: how long the service is busy with them, and what belongs together.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <ctime>

#include "ni/service/test_client.h"

namespace unet::service::service_reports_test {
namespace {

using namespace control;
using namespace test;

}  // namespace

// All others, and the signals of other hosts, wait for a turn. Its length is compared with that of a whole report on this machine: the
// time of a sanitizer or of a slow machine is in both.
TEST_CASE("reports of thousands of endpoints, asked for on two connections, cost each turn of the service little") {
  constexpr uint32_t kEmulated = 1500, kAhead = 16;
  auto ni = make_ni();
  TestClient carrier(*ni), busy(*ni), other(*ni);
  for (TestClient* client : {&carrier, &busy, &other}) client->hello();
  const uint32_t carrying = carrier.endpoint();
  for (uint32_t i = 0; i < kEmulated; ++i) REQUIRE(carrier.ask(carrier.simple<CreateEmulated>(Op::create_emulated, carrying)).code == 0);
  for (uint32_t i = 0; i < kAhead; ++i) {
    for (TestClient* client : {&busy, &other}) REQUIRE(client->send(client->simple<control::Report>(Op::report, 0)));
  }
  const auto spent = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<Nanoseconds>(now.tv_sec) * kSecond + static_cast<Nanoseconds>(now.tv_nsec);
  };
  const auto cost_of = [&](const auto& work) {
    const Nanoseconds before = spent();
    work();
    return spent() - before;
  };
  const Nanoseconds turn = cost_of([&] { ni->service().poll(monotonic_now()); });
  const Nanoseconds report = cost_of([&] { REQUIRE(ni->service().report({.uid = geteuid()}).size() > kEmulated); });
  INFO("a turn took " << turn << " ns, a whole report " << report << " ns");
  CHECK(turn < report / 64);
  for (TestClient* client : {&busy, &other}) {
    for (uint32_t i = 0; i < kAhead; ++i) REQUIRE(client->next());
  }

  uint32_t parts = 0;
  const auto whole = nlohmann::json::parse(busy.report(&parts));
  CHECK(whole["endpoints"].size() == kEmulated + 1);
  CHECK(whole["clients"].size() == 3);
  CHECK(parts > 100);
}

TEST_CASE("a report goes on with its next part only, and another may begin at any time") {
  auto ni = make_ni();
  TestClient client(*ni), other(*ni);
  client.hello();
  other.hello();
  const auto part = [&](TestClient& of, uint32_t number) {
    auto request = of.simple<control::Report>(Op::report, 0);
    request.part = number;
    return of.call(request);
  };
  for (int i = 0; i < 10; ++i) client.endpoint();
  REQUIRE(part(client, 0).as<ReportPart>().more == 1);
  CHECK(code_of(part(client, 2)) == Errc::invalid_argument);
  CHECK(code_of(part(other, 1)) == Errc::invalid_argument);
  REQUIRE(part(client, 0).as<ReportPart>().more == 1);
  CHECK(nlohmann::json::parse(client.report())["endpoints"].size() == 10);
  CHECK(code_of(part(client, 1)) == Errc::invalid_argument);
}

}  // namespace unet::service::service_reports_test
