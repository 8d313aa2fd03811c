// service_shares_test.cc - shares of a port: which claims may join, which member a connect reaches, and what a takeover restores.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <vector>

#include "ni/service/ip_config.h"
#include "ni/service/journal_records.h"
#include "ni/service/test_ip_client.h"
#include "ni/service/test_journal.h"

namespace unet::service::service_shares_test {

using namespace control;
using namespace test;
using nlohmann::json;

namespace {

const IpClaim kShared{.protocol = kTcp, .port = 80, .group = kIpReusePort};

Reply set_claim(TestClient& client, uint32_t endpoint, uint32_t number, uint32_t accepts_new_flows) {
  auto request = client.simple<SetIpClaim>(Op::set_ip_claim, endpoint);
  request.claim = number;
  request.accepts_new_flows = accepts_new_flows;
  return client.ask(request);
}

std::unique_ptr<Ni> make_ip_ni(engine::TestWire& wire) {
  NiOptions options;
  options.service.host = "testhost";
  options.service.own_user = geteuid();
  options.service.policy = Policy(geteuid());
  options.engine.ip.ports.push_back(*parse_ip_port("0=10.1.0.1/24,fd00::1/64"));
  std::vector<std::unique_ptr<Driver>> drivers;
  drivers.push_back(std::make_unique<engine::TestPort>(wire));
  return std::move(*Ni::create(std::move(options), std::move(drivers)));
}

Reply own_flow(TestClient& client, uint32_t endpoint, uint32_t number, uint16_t port) {
  auto request = client.simple<OwnIpFlow>(Op::own_ip_flow, endpoint);
  request.claim = number;
  request.local = address("10.1.0.1");
  request.remote = address("10.1.0.2");
  request.local_port = port;
  request.remote_port = 4000;
  return client.ask(request);
}

}  // namespace

TEST_CASE("who joins a claim is of the same user and group, and wants the very same") {
  IpPorts ports(1);
  const Rights all = Rights::everything();
  uint32_t endpoint = 0;
  const auto claims = [&](uint64_t user, const IpClaim& claim) {
    const auto made = ports.claim(++endpoint, user, claim, all);
    return made ? Errc::ok : made.error().code;
  };
  REQUIRE(claims(100, kShared) == Errc::ok);
  CHECK(claims(100, kShared) == Errc::ok);
  CHECK(claims(200, kShared) == Errc::already_exists);
  CHECK(claims(100, {.protocol = kTcp, .port = 80}) == Errc::already_exists);
  CHECK(claims(100, {.protocol = kTcp, .port = 80, .group = 2}) == Errc::already_exists);
  CHECK(claims(100, {.protocol = kTcp, .local = address("10.1.0.1"), .port = 80, .group = kIpReusePort}) == Errc::already_exists);
  CHECK(claims(100, {.protocol = kUdp, .port = 80, .group = 2}) == Errc::ok);
  CHECK(claims(100, {.protocol = kTcp, .port = 80, .remote = address("10.1.0.2"), .remote_port = 9, .group = 5}) == Errc::ok);
  CHECK(claims(100, {.protocol = kTcp, .port = 80, .remote = address("10.1.0.2"), .remote_port = 9, .group = 5}) == Errc::ok);
  CHECK(ports.claim(1, 100, kShared, all).error().code == Errc::already_exists);  // it has it
  // Invalid claims.
  CHECK(claims(100, {.protocol = kTcp, .port = 90, .ports = 2, .group = 1}) == Errc::invalid_argument);
  CHECK(claims(100, {.protocol = kUdp, .local = address("224.1.2.3"), .port = 90, .group = 1}) == Errc::invalid_argument);
  CHECK(claims(100, {.protocol = kTcp, .accepts_new_flows = static_cast<AcceptsNewFlows>(3), .port = 90}) == Errc::invalid_argument);
  // A port that the NI chooses had no claim before.
  const auto chosen = ports.claim(50, 100, {.protocol = kTcp, .group = 7}, all);
  REQUIRE(chosen);
  CHECK(claims(100, {.protocol = kTcp, .port = chosen->port, .group = 7}) == Errc::ok);
}

TEST_CASE("a share has one of a port's places, and a bounded number of members") {
  IpPorts ports(1);
  const Rights all = Rights::everything();
  uint32_t endpoint = 0;
  for (uint32_t i = 0; i < kIpShareMax; ++i) REQUIRE(ports.claim(++endpoint, 100, kShared, all));
  CHECK(ports.claim(++endpoint, 100, kShared, all).error().code == Errc::quota_exceeded);
  IpClaim one = kShared;
  one.group = 0;
  one.remote = address("10.1.0.2");
  for (uint32_t i = 1; i < kIpClaimsPerPortOfUserMax; ++i) {
    one.remote_port = static_cast<uint16_t>(i);
    REQUIRE(ports.claim(++endpoint, 100, one, all));
  }
  one.remote_port = 9999;
  CHECK(ports.claim(++endpoint, 100, one, all).error().code == Errc::quota_exceeded);
  ports.release(7);
  CHECK(ports.claim(++endpoint, 100, kShared, all));
}

TEST_CASE("who asks is led to one member after the other, of those that take new flows") {
  IpPorts ports(1);
  const Rights all = Rights::everything();
  std::vector<uint32_t> claims;
  for (uint32_t i = 0; i < 4; ++i) claims.push_back(ports.claim(10 + i, 100, kShared, all)->claim);
  const auto ask = [&](int times) {
    std::map<uint32_t, int> led;
    for (int i = 0; i < times; ++i) {
      const auto found = ports.find(kTcp, address("10.1.0.1"), 80);
      REQUIRE(found);
      CHECK(found->shared);
      ++led[found->endpoint];
    }
    return led;
  };
  CHECK(ask(12) == std::map<uint32_t, int>{{10, 3}, {11, 3}, {12, 3}, {13, 3}});
  CHECK(ports.set(claims[0], AcceptsNewFlows::no));
  CHECK(ports.set(claims[1], AcceptsNewFlows::if_no_other_does));
  CHECK(ask(12) == std::map<uint32_t, int>{{12, 6}, {13, 6}});
  CHECK(ports.set(claims[2], AcceptsNewFlows::no));
  ports.release(claims[3]);
  CHECK(ask(3) == std::map<uint32_t, int>{{11, 3}});
  ports.release(claims[1]);
  CHECK(ask(4) == std::map<uint32_t, int>{{10, 2}, {12, 2}});
}

TEST_CASE("a claim that reuses joins a share of another token while none of its members takes new flows") {
  constexpr IpClaim kOld{.protocol = kTcp, .accepts_new_flows = AcceptsNewFlows::no, .port = 80, .group = 7, .reuses = 1};
  IpPorts ports(1);
  const Rights all = Rights::everything();
  IpClaim next = kOld;
  next.group = 8;
  const auto claims = [&](uint32_t endpoint, const IpClaim& claim, uint64_t user = 100) {
    const auto claimed = ports.claim(endpoint, user, claim, all);
    return claimed ? Errc::ok : claimed.error().code;
  };
  const uint32_t old = ports.claim(1, 100, kOld, all)->claim;
  REQUIRE(ports.set(old, AcceptsNewFlows::yes));
  CHECK(claims(2, next) == Errc::already_exists);  // there is a server
  REQUIRE(ports.set(old, AcceptsNewFlows::no));           // and it has connections only
  CHECK(claims(2, next, 101) == Errc::already_exists);
  IpClaim wrong = next;
  wrong.reuses = 0;
  CHECK(claims(2, wrong) == Errc::already_exists);
  wrong.reuses = 2;  // a client can say that
  CHECK(claims(2, wrong) == Errc::invalid_argument);
  wrong = next;
  wrong.accepts_new_flows = AcceptsNewFlows::yes;
  CHECK(claims(2, wrong) == Errc::already_exists);
  wrong = next;
  wrong.group = kIpReusePort;
  CHECK(claims(2, wrong) == Errc::already_exists);
  const auto joined = ports.claim(2, 100, next, all);
  REQUIRE(joined);
  CHECK(ports.at(joined->claim)->claim.group == 7);
  CHECK(ports.at(joined->claim)->token == 8);
  // One of the tokens has the new flows; another member of that token, as a child, may take some of them.
  REQUIRE(ports.set(joined->claim, AcceptsNewFlows::yes));
  CHECK(ports.set(old, AcceptsNewFlows::if_no_other_does).error().code == Errc::already_exists);
  CHECK(ports.set(old, AcceptsNewFlows::no));
  const auto child = ports.claim(3, 100, next, all);
  REQUIRE(child);
  CHECK(ports.set(child->claim, AcceptsNewFlows::yes));
  CHECK(ports.at(child->claim)->claim.group == 7);
  IpClaim third = kOld;
  third.group = 9;
  CHECK(claims(4, third) == Errc::already_exists);
  // The last of the old ones goes, and the share is as before.
  ports.release(old);
  CHECK(ports.find(kTcp, address("10.1.0.1"), 80)->shared);
  CHECK(claims(4, next) == Errc::ok);
}

TEST_CASE("clients share a port, and one that asks for it hears that it is shared") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  IpClient a(*ni), b(*ni), client(*ni);
  const Reply first = claim(a, a.id, kShared);
  REQUIRE(code_of(first) == Errc::ok);
  REQUIRE(b.claims(kShared) == Errc::ok);
  CHECK(a.claims(kShared) == Errc::already_exists);
  CHECK(code_of(set_claim(a, a.id, first.claim_ip.claim, 3)) == Errc::invalid_argument);
  CHECK(code_of(set_claim(b, b.id, first.claim_ip.claim, 0)) == Errc::not_found);  // another's
  CHECK(code_of(set_claim(a, a.id, first.claim_ip.claim, 1)) == Errc::ok);
  CHECK(code_of(own_flow(a, a.id, first.claim_ip.claim, 80)) == Errc::ok);
  CHECK(code_of(own_flow(a, a.id, first.claim_ip.claim, 81)) == Errc::invalid_argument);
  CHECK(code_of(own_flow(b, b.id, first.claim_ip.claim, 80)) == Errc::not_found);  // another's
  const Reply alone = claim(b, b.id, {.protocol = kTcp, .port = 90});
  CHECK(code_of(own_flow(b, b.id, alone.claim_ip.claim, 90)) == Errc::invalid_argument);
  CHECK(report(*ni)["ip_claims"][0]["shared"] == true);
  CHECK(report(*ni)["ip_claims"][0]["takes_new"] == 1);
  const auto connect = [&](TestClient& to) {
    client.start_connect(client.id, "tcp:80:10.1.0.1");
    client.turn();
    const auto event = to.next();
    REQUIRE(event);
    REQUIRE(code_of(to.accept(event->as<ConnectRequest>().header.endpoint, event->as<ConnectRequest>().request)) == Errc::ok);
    const auto connected = client.next();
    REQUIRE(connected);
    CHECK(connected->as<Reply>().channel.shared == 1);
    CHECK(connected->as<Reply>().channel.known == 0);
  };
  connect(b);
  REQUIRE(code_of(set_claim(a, a.id, first.claim_ip.claim, 2)) == Errc::ok);
  connect(a);
  for (int i = 0; i < 4; ++i) {
    client.start_connect(client.id, "tcp:80:10.1.0.1");
    client.turn();
    const auto answer = client.next();
    REQUIRE(answer);
    CHECK(answer->as<Reply>().channel.known == 1);
    CHECK(answer->as<Reply>().channel.shared == 1);
  }
  // A port that is not shared, of an endpoint to which there is a channel.
  REQUIRE(a.claims({.protocol = kTcp, .port = 81}) == Errc::ok);
  client.start_connect(client.id, "tcp:81:10.1.0.1");
  client.turn();
  const auto answer = client.next();
  REQUIRE(answer);
  CHECK(answer->as<Reply>().channel.known == 1);
  CHECK(answer->as<Reply>().channel.shared == 0);
}

TEST_CASE("shares go on with the next network interface, and a journal that lies about them is refused") {
  const auto go_on = [](const std::function<void(IpClaimValue&)>& change, const std::function<void(Ni&)>& then) {
    engine::TestWire wire, next;
    Original original({}, &wire);
    original.next_wire = &next;
    const auto taken = original.take_over(
        [&](std::vector<JournalItem>& items) {
          const auto item = std::find_if(items.begin(), items.end(), [](const auto& each) {
            IpClaimValue value{};
            return each.key.kind == JournalKind::ip_claim && each.read(value) && value.protocol == kTcp;
          });
          REQUIRE(item != items.end());
          IpClaimValue value{};
          REQUIRE(item->read(value));
          value.ports = 1;
          change(value);
          std::memcpy(item->value.data(), static_cast<const void*>(&value), sizeof value);
        },
        then);
    return bool{taken};
  };
  uint16_t port = 0;
  const auto share = [&](IpClaimValue& value) {
    std::memset(value.local, 0, sizeof value.local);
    std::memset(value.remote, 0, sizeof value.remote);
    value.remote_port = 0;
    port = value.port;
    value.group = 77;
    value.takes_new = 1;
  };
  CHECK(go_on(share, [&](Ni& ni) {
    IpClient late(ni);
    CHECK(late.claims({.protocol = kTcp, .port = port}) == Errc::already_exists);
    CHECK(late.claims({.protocol = kTcp, .port = port, .group = 78}) == Errc::already_exists);
    CHECK(late.claims({.protocol = kTcp, .port = port, .group = 77}) == Errc::ok);
    const json all = report(ni);
    for (const json& each : all["ip_claims"]) {
      if (each["protocol"] == "tcp" && each["endpoint"] != late.id) CHECK(each["takes_new"] == 1);
    }
  }));
  const auto nothing = [](Ni&) {};
  CHECK_FALSE(go_on([](IpClaimValue& value) { value.takes_new = 3; }, nothing));
  CHECK_FALSE(go_on([](IpClaimValue& value) { value.group = 5, value.ports = 2; }, nothing));
}

}  // namespace unet::service::service_shares_test
