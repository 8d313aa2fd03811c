// service_ip_test.cc - IP as clients ask for it: rights, conflicts, quotas, ports that are chosen, targets, ends, and a takeover.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "ni/service/ip_config.h"
#include "ni/service/journal_records.h"
#include "ni/service/test_ip_client.h"
#include "ni/service/test_journal.h"

namespace unet::service::service_ip_test {

using namespace control;
using namespace test;
using nlohmann::json;

namespace {

std::unique_ptr<Ni> make_ip_ni(engine::TestWire& wire, std::string_view policy = {}) {
  NiOptions options;
  options.service.host = "testhost";
  options.service.own_user = geteuid();
  options.service.policy = policy.empty() ? Policy(geteuid()) : *Policy::parse(policy, "policy", geteuid());
  options.engine.ip.ports.push_back(
      *parse_ip_port("0=10.1.0.1/24,fd00::1/64,gateway=10.1.0.254,route=10.2.0.0/16@10.1.0.253,route=fd01::/32@fe80::9"));
  std::vector<std::unique_ptr<Driver>> drivers;
  drivers.push_back(std::make_unique<engine::TestPort>(wire));
  return std::move(*Ni::create(std::move(options), std::move(drivers)));
}

}  // namespace

TEST_CASE("an endpoint opens IP once, if the NI has it") {
  auto bare = make_ni();
  TestClient poor(*bare);
  poor.hello();
  CHECK(code_of(open_ip(poor, poor.endpoint())) == Errc::not_found);
  CHECK(code_of(poor.ask(poor.simple<GetIpConfiguration>(Op::ip_configuration, 0))) == Errc::not_found);

  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  TestClient client(*ni);
  client.hello();
  const uint32_t endpoint = client.endpoint();
  CHECK(code_of(claim(client, endpoint, {.protocol = kUdp, .port = 2000})) == Errc::invalid_argument);  // not open
  const Reply opened = open_ip(client, endpoint);
  REQUIRE(code_of(opened) == Errc::ok);
  CHECK(opened.channel.kind == ChannelKind::ni);
  CHECK(code_of(open_ip(client, endpoint)) == Errc::already_exists);
  CHECK(code_of(open_ip(client, endpoint + 1)) == Errc::not_found);
  // An emulated endpoint has no queues for an IP channel.
  auto emulated = client.simple<CreateEmulated>(Op::create_emulated, endpoint);
  const Reply made = client.ask(emulated);
  REQUIRE(code_of(made) == Errc::ok);
  const Reply refused = open_ip(client, made.create_endpoint.endpoint);
  CHECK(code_of(refused) == Errc::invalid_argument);
  CHECK(contains(text_of(refused), "emulated"));
  // Closed, it is opened again; and the claims have gone.
  REQUIRE(code_of(claim(client, endpoint, {.protocol = kUdp, .port = 2000})) == Errc::ok);
  auto close = client.simple<CloseChannel>(Op::close_channel, endpoint);
  close.channel = opened.channel.channel;
  CHECK(code_of(client.ask(close)) == Errc::ok);
  CHECK(report(*ni)["ip_claims"].empty());
  CHECK(code_of(open_ip(client, endpoint)) == Errc::ok);
  CHECK(code_of(claim(client, endpoint, {.protocol = kUdp, .port = 2000})) == Errc::ok);
}

TEST_CASE("claims that go together, and those that do not") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  IpClient a(*ni), b(*ni);
  REQUIRE(a.claims({.protocol = kUdp, .port = 2000}) == Errc::ok);
  CHECK(b.claims({.protocol = kUdp, .port = 2000}) == Errc::already_exists);
  CHECK(a.claims({.protocol = kUdp, .port = 2000}) == Errc::already_exists);
  CHECK(b.claims({.protocol = kTcp, .port = 2000}) == Errc::ok);
  CHECK(b.claims({.protocol = kUdp, .local = address("10.1.0.1"), .port = 2000}) == Errc::already_exists);
  CHECK(b.claims({.protocol = kUdp, .port = 1990, .ports = 11}) == Errc::already_exists);
  CHECK(b.claims({.protocol = kUdp, .port = 1990, .ports = 10}) == Errc::ok);
  // One peer's packets, of the same user's port.
  CHECK(b.claims({.protocol = kUdp, .port = 2000, .remote = address("10.1.0.9"), .remote_port = 5}) == Errc::ok);
  CHECK(b.claims({.protocol = kUdp, .port = 2000, .remote = address("10.1.0.9"), .remote_port = 5}) == Errc::already_exists);
  CHECK(b.claims({.protocol = kUdp, .port = 2000, .remote = address("10.1.0.9"), .remote_port = 6}) == Errc::ok);
  // Two addresses.
  CHECK(a.claims({.protocol = kUdp, .local = address("10.1.0.1"), .port = 3000}) == Errc::ok);
  CHECK(b.claims({.protocol = kUdp, .local = address("fd00::1"), .port = 3000}) == Errc::ok);
  CHECK(b.claims({.protocol = kUdp, .port = 3000}) == Errc::already_exists);
  // An address of another host.
  CHECK(b.claims({.protocol = kUdp, .local = address("10.1.0.2"), .port = 4000}) == Errc::not_found);
  // Nonsense.
  CHECK(b.claims({.protocol = 1, .port = 4000}) == Errc::invalid_argument);
  CHECK(b.claims({.protocol = kUdp, .port = 4000, .ports = 0}) == Errc::invalid_argument);
  CHECK(b.claims({.protocol = kUdp, .port = 4000, .ports = kIpPortsPerClaimMax + 1}) == Errc::invalid_argument);
  CHECK(b.claims({.protocol = kUdp, .port = 65535, .ports = 2}) == Errc::invalid_argument);
  CHECK(b.claims({.protocol = kUdp, .local = address("10.1.0.1"), .port = 4000, .remote = address("fd00::9")}) == Errc::invalid_argument);
  // A client cannot release another endpoint's claim.
  const Reply mine = claim(a, a.id, {.protocol = kUdp, .port = 5000});
  REQUIRE(code_of(mine) == Errc::ok);
  CHECK(code_of(release(b, b.id, mine.claim_ip.claim)) == Errc::not_found);
  CHECK(code_of(release(a, a.id, mine.claim_ip.claim)) == Errc::ok);
  CHECK(code_of(release(a, a.id, mine.claim_ip.claim)) == Errc::not_found);
  CHECK(b.claims({.protocol = kUdp, .port = 5000}) == Errc::ok);
  // An endpoint's claims end with it, and with its connection.
  a.close();
  a.turn();
  b.turn(20);
  CHECK(b.claims({.protocol = kUdp, .local = address("10.1.0.1"), .port = 3000}) == Errc::ok);
  CHECK(report(*ni)["held"]["service"]["ip_claims"] == report(*ni)["ip_claims"].size());
}

TEST_CASE("a group's port is for all who want it, beside who has the port") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  IpClient a(*ni), b(*ni);
  const ip::IpAddress group = address("239.1.2.3");
  CHECK(a.claims({.protocol = kUdp, .local = group, .port = 5353}) == Errc::ok);
  CHECK(a.claims({.protocol = kUdp, .local = group, .port = 5353}) == Errc::already_exists);
  CHECK(b.claims({.protocol = kUdp, .local = group, .port = 5353}) == Errc::ok);
  CHECK(b.claims({.protocol = kUdp, .port = 5353}) == Errc::ok);
  CHECK(a.claims({.protocol = kUdp, .port = 5353}) == Errc::already_exists);
  CHECK(a.claims({.protocol = kUdp, .local = address("ff05::9"), .port = 5353}) == Errc::ok);
  CHECK(a.claims({.protocol = kTcp, .local = group, .port = 5353}) == Errc::invalid_argument);
  CHECK(a.claims({.protocol = kUdp, .local = group}) == Errc::invalid_argument);
  // The NI is in so many, and again when some are left.
  const auto another = [&](uint32_t i) {
    return IpClaim{.protocol = kUdp, .local = address(("239.2.0." + std::to_string(i)).c_str()), .port = 7};
  };
  std::optional<uint32_t> last;
  for (uint32_t i = 1; i <= kIpGroupsMax - 2; ++i) {
    const Reply made = claim(a, a.id, another(i));
    REQUIRE(code_of(made) == Errc::ok);
    last = made.claim_ip.claim;
  }
  CHECK(a.claims(another(100)) == Errc::quota_exceeded);
  CHECK(b.claims(another(1)) == Errc::ok);
  CHECK(code_of(release(a, a.id, *last)) == Errc::ok);
  CHECK(a.claims(another(100)) == Errc::ok);
  CHECK(b.claims(another(101)) == Errc::quota_exceeded);
}

TEST_CASE("one port has a bounded number of claims, of which none is a group's") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  IpClient a(*ni);
  for (uint32_t i = 0; i < kIpClaimsPerPortOfUserMax; ++i) {
    REQUIRE(a.claims({.protocol = kUdp, .local = address(("239.2.0." + std::to_string(1 + i)).c_str()), .port = 2000}) == Errc::ok);
  }
  CHECK(a.claims({.protocol = kUdp, .local = address("ff05::1:3"), .port = 2000}) == Errc::quota_exceeded);
  CHECK(a.claims({.protocol = kUdp, .port = 2000}) == Errc::ok);
  for (uint32_t i = 0; i < kIpClaimsPerPortOfUserMax; ++i) {
    REQUIRE(a.claims({.protocol = kTcp, .port = 2000, .remote = address("10.1.0.9"), .remote_port = static_cast<uint16_t>(i + 1)}) ==
            Errc::ok);
  }
  CHECK(a.claims({.protocol = kTcp, .port = 2000, .remote = address("10.1.0.9"), .remote_port = 999}) == Errc::quota_exceeded);
  CHECK(a.claims({.protocol = kTcp, .port = 2001, .remote = address("10.1.0.9"), .remote_port = 999}) == Errc::ok);
}

TEST_CASE("no user has all groups, nor all claims that a port may have") {
  constexpr uid_t kUsers[] = {4321, 4322, 4323};
  if (!can_be(kUsers[0])) return;
  engine::TestWire wire;
  auto ni = make_ip_ni(wire, "[[rule]]\nany = true\nip_groups = 12\n");
  std::vector<std::unique_ptr<IpClient>> of;
  for (const uid_t user : kUsers) of.push_back(as_user(user, [&] { return std::make_unique<IpClient>(*ni); }));
  const auto group = [&](uint32_t user, uint32_t i) {
    return address(("239.2." + std::to_string(user) + "." + std::to_string(i)).c_str());
  };
  const auto joins = [&](uint32_t user, uint32_t owner, uint32_t i, uint16_t port) {
    return of[user]->claims({.protocol = kUdp, .local = group(owner, i), .port = port});
  };
  for (uint32_t i = 0; i < 12; ++i) REQUIRE(joins(0, 0, i, 2000) == Errc::ok);
  CHECK(joins(0, 0, 12, 2000) == Errc::quota_exceeded);
  CHECK(joins(0, 0, 3, 2001) == Errc::ok);  // a group that the user is in already
  for (uint32_t i = 0; i < 12; ++i) REQUIRE(joins(1, i < 2 ? 0 : 1, i, 2000) == Errc::ok);
  CHECK(joins(1, 0, 5, 2000) == Errc::quota_exceeded);
  for (uint32_t i = 0; i < kIpGroupsMax - 22; ++i) REQUIRE(joins(2, 2, i, 2000) == Errc::ok);
  CHECK(joins(2, 2, 99, 2000) == Errc::quota_exceeded);  // the NI has no more
  CHECK(joins(2, 0, 0, 2000) == Errc::ok);
  // A user's groups end with its endpoint.
  of[1].reset();
  of[2]->turn(20);
  CHECK(joins(2, 0, 1, 2000) == Errc::ok);
  CHECK(joins(2, 0, 2, 2000) == Errc::quota_exceeded);
  CHECK(joins(0, 0, 13, 2000) == Errc::quota_exceeded);
}

TEST_CASE("ports that are chosen are free, and of the dynamic range while it has some") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  IpClient a(*ni);
  std::set<uint32_t> taken;
  REQUIRE(a.claims({.protocol = kUdp, .port = 50'000, .ports = 1000}) == Errc::ok);
  for (uint32_t i = 0; i < 15; ++i) {
    const Reply made = claim(a, a.id, {.protocol = kUdp, .ports = 900});
    if (code_of(made) != Errc::ok) break;
    const uint32_t first = made.claim_ip.port;
    CHECK(first >= (i == 0 ? 49'152 : 32'768));
    CHECK((first >= 51'000 || first + 900 <= 50'000));
    for (uint32_t port = first; port < first + 900; ++port) REQUIRE(taken.insert(port).second);
  }
  CHECK(taken.size() >= 900 * 10);
  CHECK(code_of(claim(a, a.id, {.protocol = kUdp})) == Errc::ok);
  // All of them, and none is left.
  IpClient b(*ni);
  for (uint32_t port = 32'768; port < 65'536; port += 1024) {
    REQUIRE(b.claims({.protocol = kTcp, .port = static_cast<uint16_t>(port), .ports = 1024}) == Errc::ok);
  }
  CHECK(b.claims({.protocol = kTcp}) == Errc::already_exists);
}

TEST_CASE("rights to ports are the policy's, and so is how many") {
  const std::string who = "[[rule]]\nuid = " + std::to_string(geteuid()) + "\n";
  {
    engine::TestWire wire;
    auto ni = make_ip_ni(wire, who);
    IpClient a(*ni);
    CHECK(a.claims({.protocol = kUdp, .port = 1023}) == Errc::not_permitted);
    CHECK(a.claims({.protocol = kUdp, .port = 1024}) == Errc::ok);
    CHECK(a.claims({.protocol = kUdp}) == Errc::ok);
    CHECK(claim(a, a.id, {.protocol = kTcp, .ports = 64}).claim_ip.plenty == 1);
    CHECK(claim(a, a.id, {.protocol = kTcp, .ports = 1000}).claim_ip.plenty == 0);  // a quarter of its quota
  }
  {
    engine::TestWire wire;
    auto ni = make_ip_ni(wire, who + "ip_ports = [\"80\", \"8000-8099\", \"8100-8199\"]\nip_claims = 3\nip_ports_at_once = 200\n");
    IpClient a(*ni);
    CHECK(a.claims({.protocol = kTcp, .port = 80}) == Errc::ok);
    CHECK(a.claims({.protocol = kTcp, .port = 79, .ports = 2}) == Errc::not_permitted);
    CHECK(a.claims({.protocol = kTcp, .port = 8050, .ports = 160}) == Errc::not_permitted);
    CHECK(a.claims({.protocol = kTcp}) == Errc::not_permitted);  // none of those that are chosen
    CHECK(a.claims({.protocol = kTcp, .port = 8050, .ports = 100}) == Errc::ok);
    CHECK(a.claims({.protocol = kUdp, .port = 8000, .ports = 100}) == Errc::quota_exceeded);  // 101 of 200
    CHECK(a.claims({.protocol = kUdp, .port = 8000, .ports = 99}) == Errc::ok);
    CHECK(a.claims({.protocol = kTcp, .port = 8000}) == Errc::quota_exceeded);                // three claims
    const json users = report(*ni)["users"];
    REQUIRE(users.size() == 1);
    CHECK(users[0]["ip_claims"] == 3);
    CHECK(users[0]["ip_ports"] == 200);
  }
  engine::TestWire wire;
  auto ni = make_ip_ni(wire, who + "ip_ports = []\n");
  TestClient client(*ni);
  client.hello();
  CHECK(code_of(open_ip(client, client.endpoint())) == Errc::not_permitted);
  for (const char* wrong : {"0", "5-4", "1-65536", "x", "1-", ""}) {
    CHECK_FALSE(Policy::parse(who + "ip_ports = [\"" + wrong + "\"]\n", "policy", 0));
  }
  // The NI's own user, if no rule names it.
  CHECK(Policy(7).rights({.uid = 7, .pid = 0, .groups = {}}).may_claim(1, 1));
  CHECK_FALSE(Policy(7).rights({.uid = 8, .pid = 0, .groups = {}}).may_claim(2000, 1));
}

TEST_CASE("another user's port is his alone") {
  IpPorts ports(1);
  Rights all = Rights::everything();
  REQUIRE(ports.claim(1, 100, {.protocol = kTcp, .port = 80}, all));
  // Not even one peer's packets.
  const auto stolen = ports.claim(2, 200, {.protocol = kTcp, .port = 80, .remote = address("10.1.0.9"), .remote_port = 5}, all);
  REQUIRE_FALSE(stolen);
  CHECK(stolen.error().code == Errc::already_exists);
  CHECK(ports.claim(3, 100, {.protocol = kTcp, .port = 80, .remote = address("10.1.0.9"), .remote_port = 5}, all));
  REQUIRE(ports.claim(4, 300, {.protocol = kTcp, .port = 81, .remote = address("10.1.0.9"), .remote_port = 5}, all));
  CHECK_FALSE(ports.claim(5, 200, {.protocol = kTcp, .port = 81}, all));
  CHECK(ports.find(kTcp, address("10.1.0.1"), 80).value().endpoint == 1);
  CHECK_FALSE(ports.find(kTcp, address("10.1.0.1"), 81));
}

TEST_CASE("what the ports have is told") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  IpClient a(*ni);
  const Incoming in = a.call(a.simple<GetIpConfiguration>(Op::ip_configuration, a.id));
  const auto reply = in.as<Reply>();
  REQUIRE(code_of(reply) == Errc::ok);
  REQUIRE(in.descriptors.size() == 1);
  REQUIRE(reply.ip_configuration.addresses >= 2);
  REQUIRE(reply.ip_configuration.interfaces == 1);
  IpAddressInfo first;
  REQUIRE(pread(in.descriptors[0].get(), static_cast<void*>(&first), sizeof first, 0) == static_cast<ssize_t>(sizeof first));
  CHECK(first.address == address("10.1.0.1"));
  CHECK(first.prefix == 24);
  CHECK(first.tentative == 1);
  IpInterfaceInfo interface;
  const auto at = static_cast<off_t>(reply.ip_configuration.addresses * sizeof first);
  const ssize_t got = pread(in.descriptors[0].get(), static_cast<void*>(&interface), sizeof interface, at);
  REQUIRE(got == static_cast<ssize_t>(sizeof interface));
  CHECK(interface.mtu == 1500);
  CHECK(interface.gateway4 == address("10.1.0.254"));
  CHECK(interface.gateway6.is_unspecified());
  REQUIRE(reply.ip_configuration.routes == 2);
  IpRouteInfo routes[2];
  REQUIRE(pread(in.descriptors[0].get(), static_cast<void*>(routes), sizeof routes, at + got) == static_cast<ssize_t>(sizeof routes));
  CHECK(routes[0].network == address("10.2.0.0"));
  CHECK(routes[0].prefix == 16);
  CHECK(routes[0].gateway == address("10.1.0.253"));
  CHECK(routes[1].network == address("fd01::"));
  CHECK(routes[1].port == 0);
  const json told = report(*ni);
  CHECK(told["ports"][0]["ip"]["routes"][0]["gateway"] == "10.1.0.253");
  CHECK(told["ports"][0]["ip"]["addresses"][0]["address"] == "10.1.0.1");
  CHECK(told["ports"][0]["ip"]["gateways"][0] == "10.1.0.254");
  CHECK(told["ports"][0]["ip"]["counters"]["frames"] == 0);
}

TEST_CASE("an endpoint is found by what it claims") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  IpClient server(*ni), other(*ni), client(*ni);
  REQUIRE(server.claims({.protocol = kTcp, .port = 80}) == Errc::ok);
  REQUIRE(other.claims({.protocol = kUdp, .local = address("fd00::1"), .port = 80}) == Errc::ok);
  const auto asked = [&](TestClient& who, const char* target) {
    client.start_connect(client.id, target);
    client.turn();
    const auto event = who.next();
    if (!event || event->op() != Op::connect_request) return false;
    const auto request = event->as<ConnectRequest>();
    Incoming accepted = who.accept(request.header.endpoint, request.request);
    const auto connected = client.next();
    return code_of(accepted) == Errc::ok && connected && code_of(*connected) == Errc::ok &&
           connected->as<Reply>().channel.kind == ChannelKind::local && connected->as<Reply>().channel.peer.view() == target;
  };
  CHECK(asked(server, "tcp:80:10.1.0.1"));
  CHECK(asked(other, "udp:80:fd00::1"));
  const auto fails = [&](const char* target) {
    client.start_connect(client.id, target);
    const auto answer = client.next();
    return answer ? code_of(*answer) : Errc::ok;
  };
  CHECK(fails("udp:80:10.1.0.1") == Errc::refused);     // only the other address
  CHECK(fails("tcp:81:10.1.0.1") == Errc::not_found);
  CHECK(fails("tcp:80:10.1.0.2") == Errc::refused);     // another host's
  CHECK(fails("tcp:80") == Errc::invalid_argument);
  CHECK(fails("tcp:80:") == Errc::invalid_argument);
  CHECK(fails("tcp:0:10.1.0.1") == Errc::invalid_argument);
  CHECK(fails("tcp:99999:10.1.0.1") == Errc::invalid_argument);
  CHECK(fails("tcp:80:10.1.0.1@host") == Errc::invalid_argument);
}

TEST_CASE("two endpoints have one local channel, however often the one asks for ports of the other") {
  engine::TestWire wire;
  auto ni = make_ip_ni(wire);
  IpClient server(*ni), client(*ni);
  REQUIRE(server.claims({.protocol = kTcp, .port = 80, .ports = 2}) == Errc::ok);
  REQUIRE(client.claims({.protocol = kTcp, .port = 90}) == Errc::ok);
  const auto ask = [](TestClient& who, uint32_t id, const char* target) {
    who.start_connect(id, target);
    who.turn();
  };
  const auto opened = [&](TestClient& from, uint32_t id, const char* target, TestClient& to) {
    ask(from, id, target);
    const auto event = to.next();
    REQUIRE(event);
    REQUIRE(event->op() == Op::connect_request);
    REQUIRE(code_of(to.accept(event->as<ConnectRequest>().header.endpoint, event->as<ConnectRequest>().request)) == Errc::ok);
    const auto connected = from.next();
    REQUIRE(connected);
    CHECK(connected->as<Reply>().channel.known == 0);
    return connected->as<Reply>().channel.channel;
  };
  const auto known = [&](TestClient& from, uint32_t id, const char* target) -> std::optional<uint32_t> {
    ask(from, id, target);
    const auto answer = from.next();
    REQUIRE(answer);
    REQUIRE(code_of(*answer) == Errc::ok);
    CHECK(answer->descriptors.empty());
    if (answer->as<Reply>().channel.known != 1) return std::nullopt;
    return answer->as<Reply>().channel.channel;
  };
  const uint32_t channel = opened(client, client.id, "tcp:80:10.1.0.1", server);
  CHECK(known(client, client.id, "tcp:80:10.1.0.1") == channel);
  CHECK(known(client, client.id, "tcp:81:fd00::1") == channel);
  CHECK(known(server, server.id, "tcp:90:10.1.0.1"));  // the server's side
  // Another endpoint of theirs has its own; so has this one, when it is closed.
  const uint32_t second = client.endpoint();
  opened(client, second, "tcp:80:10.1.0.1", server);
  auto close = client.simple<CloseChannel>(Op::close_channel, client.id);
  close.channel = channel;
  REQUIRE(code_of(client.ask(close)) == Errc::ok);
  while (server.next()) {}
  opened(client, client.id, "tcp:81:10.1.0.1", server);
}

TEST_CASE("IP channels and claims go on with the next network interface") {
  engine::TestWire wire, next;
  Original original({}, &wire);
  original.next_wire = &next;
  const auto nothing = [](std::vector<JournalItem>&) {};
  const auto taken = original.take_over(nothing, [&](Ni& ni) {
    const json told = report(ni);
    REQUIRE(told["ip_claims"].size() == 2);
    CHECK(told["ip_claims"][0]["port"] == 8000);
    CHECK(told["ip_claims"][0]["ports"] == 3);
    CHECK(told["ip_claims"][0]["local"] == "10.1.0.1");
    CHECK(told["users"][0]["ip_claims"] == 2);
    CHECK(told["users"][0]["ip_ports"] == 6);
    IpClient late(ni);
    CHECK(late.claims({.protocol = kTcp, .port = 8002}) == Errc::already_exists);
    CHECK(late.claims({.protocol = kTcp, .port = 8003}) == Errc::ok);
    // An address that the previous NI had not finished probing is still tentative.
    CHECK(told["ports"][0]["ip"]["addresses"][0]["tentative"] == true);
  });
  CHECK(taken);
}

TEST_CASE("a network interface without IP closes the channels that had it") {
  engine::TestWire wire;
  Original original({}, &wire);
  const auto taken = original.take_over([](std::vector<JournalItem>&) {}, [&](Ni& ni) {
    CHECK(report(ni)["ip_claims"].empty());
    size_t closed = 0;
    const json told = report(ni);
    for (const json& channel : told["channels"]) {
      if (channel["path"] != "ip") continue;
      CHECK(channel["state"] == "closed");
      ++closed;
    }
    CHECK(closed == 1);
  });
  CHECK(taken);
}

TEST_CASE("a journal that lies about claims is refused") {
  const auto refused = [](const std::function<void(JournalItem&, IpClaimValue&)>& lie) {
    engine::TestWire wire, next;
    Original original({}, &wire);
    original.next_wire = &next;
    const auto taken = original.take_over([&](std::vector<JournalItem>& items) {
      const auto item = std::find_if(items.begin(), items.end(), [](const auto& each) { return each.key.kind == JournalKind::ip_claim; });
      REQUIRE(item != items.end());
      IpClaimValue value{};
      REQUIRE(item->read(value));
      lie(*item, value);
      std::memcpy(item->value.data(), static_cast<const void*>(&value), sizeof value);
    });
    return !taken && taken.error().code == Errc::protocol;
  };
  CHECK_FALSE(refused([](JournalItem&, IpClaimValue&) {}));
  CHECK(refused([](JournalItem& item, IpClaimValue&) { item.key.a = 77; }));
  CHECK(refused([](JournalItem& item, IpClaimValue&) { item.key.b = kIpClaimsMax; }));
  CHECK(refused([](JournalItem& item, IpClaimValue&) { item.key.b = 1; }));  // the other's
  CHECK(refused([](JournalItem&, IpClaimValue& value) { value.protocol = 1; }));
  CHECK(refused([](JournalItem&, IpClaimValue& value) { value.protocol = kUdp; }));  // which the other claims
  CHECK(refused([](JournalItem&, IpClaimValue& value) { value.port = 0; }));
  CHECK(refused([](JournalItem&, IpClaimValue& value) { value.ports = 0; }));
  CHECK(refused([](JournalItem&, IpClaimValue& value) { value.port = 65535; }));
}

TEST_CASE("which ports have IP, as the configuration says it") {
  const auto good = parse_ip_port("3=10.0.0.1/24,fd00::1/64,gateway=10.0.0.254,gateway=fe80::1,dhcp,slaac,unprobed");
  REQUIRE(good);
  CHECK(good->port == 3);
  REQUIRE(good->addresses.size() == 2);
  CHECK(good->addresses[1].address == address("fd00::1"));
  CHECK(good->addresses[1].prefix == 64);
  CHECK(good->gateway4 == address("10.0.0.254"));
  CHECK(good->gateway6 == address("fe80::1"));
  CHECK(good->autoconfigure);
  CHECK(good->dhcp);
  CHECK(!good->probe);
  const auto routes = parse_ip_port("0=10.0.0.1/24,route=10.2.0.0/16@10.0.0.253,route=10.2.3.4/32@10.0.0.252,route=fd01::/16@fe80::9");
  REQUIRE(routes);
  REQUIRE(routes->routes.size() == 3);
  CHECK(routes->routes[1].network == address("10.2.3.4"));
  CHECK(routes->routes[1].prefix == 32);
  CHECK(routes->routes[2].gateway == address("fe80::9"));
  for (const char* wrong :
       {"", "10.2.0.0/16", "10.2.0.0@10.0.0.2", "10.2.0.0/0@10.0.0.2", "10.2.0.0/33@10.0.0.2", "10.2.0.0/16@", "10.2.0.0/15@x",
        "10.2.0.1/16@10.0.0.2", "fd01::1/16@fe80::9", "10.2.0.0/16@fe80::9", "fd01::/16@10.0.0.2",
        "127.0.0.0/8@10.0.0.2", "224.0.0.0/4@10.0.0.2", "10.2.0.0/16@127.0.0.1", "10.2.0.0/16@224.0.0.1",
        "10.2.0.0/16@10.0.0.2,route=10.2.0.0/16@10.0.0.3"}) {
    CAPTURE(wrong);
    const auto bad = parse_ip_port(std::string("0=10.0.0.1/24,route=") + wrong);
    REQUIRE_FALSE(bad);
    CHECK(bad.error().code == Errc::invalid_argument);
  }
  REQUIRE(parse_ip_port("0=slaac"));
  CHECK(parse_ip_port("0=slaac")->probe);
  for (const char* wrong : {"", "0", "=10.0.0.1/24", "x=10.0.0.1/24", "16=10.0.0.1/24", "0=", "0=10.0.0.1", "0=10.0.0.1/", "0=10.0.0.1/0",
                            "0=10.0.0.1/33", "0=fd00::1/129", "0=10.0.0.1/24,", "0=10.0.0.1/24,10.0.0.1/24",
                            "0=224.0.0.1/4",
                            "0=10.0.0.1/24,gateway=", "0=10.0.0.1/24,gateway=10.0.0.2,gateway=10.0.0.3", "0=10.0.0.1/24,dhcpx"}) {
    CAPTURE(wrong);
    const auto bad = parse_ip_port(wrong);
    REQUIRE_FALSE(bad);
    CHECK(bad.error().code == Errc::invalid_argument);
  }
  const auto one = *parse_ip_port("0=10.0.0.1/24"), other = *parse_ip_port("1=10.0.0.1/24"), third = *parse_ip_port("1=10.0.0.2/24");
  CHECK(check_ip_ports({one, third}, 2, 1));
  CHECK(parse_ip_port("0=10.0.0.1/24,route=0.0.0.0/1@10.0.0.2,route=128.0.0.0/1@10.0.0.2,route=::/1@fe80::1"));
  const auto with = [](const char* text) { return check_ip_ports({*parse_ip_port(text)}, 1, 1); };
  CHECK(with("0=10.0.0.1/24,route=10.2.0.0/16@10.0.0.2,route=fd01::/16@fe80::1"));
  CHECK_FALSE(with("0=10.0.0.1/24,route=10.2.0.0/16@10.0.0.1"));
  CHECK_FALSE(with("0=10.0.0.1/24,route=10.2.0.0/16@10.0.1.1"));
  CHECK(with("0=dhcp,route=10.2.0.0/16@10.0.1.1"));
  CHECK_FALSE(check_ip_ports({one, third}, 1, 1));  // there is no port 1
  CHECK_FALSE(check_ip_ports({one, other}, 2, 1));  // one address at two ports
  CHECK_FALSE(check_ip_ports({one, one}, 2, 1));
  CHECK(check_ip_ports({one}, 2, 2));
  CHECK_FALSE(check_ip_ports({third}, 2, 2));       // of engine 1
  CHECK(check_ip_ports({third}, 2, 2, {1, 0}));
  CHECK_FALSE(check_ip_ports({one}, 2, 2, {1, 0}));
}

}  // namespace unet::service::service_ip_test
