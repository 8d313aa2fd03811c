// service_wire_test.cc - two whole NIs, service and engine, on one simulated wire: host discovery, and channels that are opened, refused,
// lost or static, as clients see them.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <memory>

#include "drivers/sim/sim_network.h"
#include "ni/service/test_client.h"

namespace unet::service {
namespace {

using namespace control;
using namespace test;

constexpr Nanoseconds kHang = 60 * kSecond;  // an event that takes longer is lost
constexpr Nanoseconds kSoonLost = kSecond;   // for tests that lose a host; too short where this process may lose its core

struct Wire {
  explicit Wire(uint32_t hosts, Nanoseconds lost = kHang) : network(hosts), lost_after(lost) {}

  std::unique_ptr<Ni> start(const std::string& host, uint32_t port, std::vector<StaticChannel> channels = {}) {
    std::vector<std::unique_ptr<Driver>> drivers;
    drivers.push_back(network.port(port));
    return start_with(host, std::move(drivers), std::move(channels));
  }
  std::unique_ptr<Ni> start_with(const std::string& host, std::vector<std::unique_ptr<Driver>> drivers,
                                 std::vector<StaticChannel> channels = {}) const {
    NiOptions options;
    options.service.host = host;
    options.service.own_user = geteuid();
    options.service.policy = Policy(geteuid());
    options.service.lost_after = lost_after;
    options.service.channels = std::move(channels);
    auto ni = Ni::create(std::move(options), std::move(drivers));
    REQUIRE(ni);
    return std::move(*ni);
  }

  drivers::SimNetwork network;
  Nanoseconds lost_after;
};

// Runs all of them until `client` receives a packet, at most `limit`.
std::optional<Incoming> next(std::vector<Ni*> all, TestClient& client, Nanoseconds limit = kHang) {
  const Nanoseconds end = monotonic_now() + limit;
  while (monotonic_now() < end) {
    for (Ni* ni : all) ni->wait(0);
    if (auto in = client.receive()) return in;
  }
  return std::nullopt;
}

struct Two {
  Wire wire;
  std::unique_ptr<Ni> a = wire.start("alpha", 0), b = wire.start("beta", 1);
  TestClient client{*a}, server{*b};
  uint32_t from = 0, to = 0;

  explicit Two(Nanoseconds lost_after = kHang) : wire(2, lost_after) {
    client.hello();
    server.hello();
    from = client.endpoint();
    to = server.endpoint();
    REQUIRE(server.bind(to, "echo").code == 0);
  }
  std::vector<Ni*> all() const { return {a.get(), b.get()}; }

  uint64_t request() {
    const auto event = next(all(), server);
    REQUIRE(event);
    REQUIRE(event->op() == Op::connect_request);
    CHECK(event->as<ConnectRequest>().peer_uid == -1);
    CHECK(event->as<ConnectRequest>().same_user == 0);
    CHECK(event->as<ConnectRequest>().peer.view() == "alpha");
    return event->as<ConnectRequest>().request;
  }
  void answer_accept(uint64_t id) {
    auto accept = server.simple<Accept>(Op::accept, to);
    accept.request = id;
    REQUIRE(server.send(accept));
  }
  // Opens a channel; returns the numbers of both ends.
  std::pair<uint32_t, uint32_t> open() {
    client.start_connect(from, "echo@beta");
    answer_accept(request());
    const auto connected = next(all(), client), accepted = next(all(), server);
    REQUIRE(connected);
    REQUIRE(accepted);
    REQUIRE(code_of(*connected) == Errc::ok);
    REQUIRE(code_of(*accepted) == Errc::ok);
    CHECK(connected->as<Reply>().channel.kind == ChannelKind::ni);
    CHECK(connected->as<Reply>().channel.wire_mtu == fragment_payload(1500, false));
    CHECK(connected->as<Reply>().channel.peer.view() == "echo@beta");
    return {connected->as<Reply>().channel.channel, accepted->as<Reply>().channel.channel};
  }
};

nlohmann::json report(Ni& ni) { return nlohmann::json::parse(report_text(ni)); }

}  // namespace

TEST_CASE("a channel to name@host, closed by the other side") {
  Two two;
  const auto [mine, theirs] = two.open();
  CHECK(report(*two.a)["hosts"][0]["host"] == "beta");
  CHECK(report(*two.a)["channels"][0]["path"] == "wire");
  auto close = two.server.simple<CloseChannel>(Op::close_channel, two.to);
  close.channel = theirs;
  REQUIRE(two.server.send(close));
  const auto event = next(two.all(), two.client);
  REQUIRE(event);
  CHECK(event->op() == Op::channel_closed);
  CHECK(event->as<ChannelClosed>().channel == mine);
  CHECK(event->as<ChannelClosed>().reason == CloseReason::closed_by_peer);
}

TEST_CASE("a channel over the wire that is not opened says why") {
  Two two;
  SECTION("no such endpoint there") {
    two.client.start_connect(two.from, "nobody@beta");
    const auto in = next(two.all(), two.client);
    REQUIRE(in);
    CHECK(code_of(*in) == Errc::not_found);
    CHECK(contains(text_of(in->as<Reply>()), "'nobody' on host 'beta'"));
  }
  SECTION("no such host") {
    two.client.start_connect(two.from, "echo@gamma", Path::automatic, 300);
    const auto in = next(two.all(), two.client);
    REQUIRE(in);
    CHECK(code_of(*in) == Errc::not_found);
    CHECK(contains(text_of(in->as<Reply>()), "'gamma'"));
  }
  SECTION("that host is being drained") {
    two.b->service().drain(true);
    two.client.start_connect(two.from, "echo@beta");
    const auto in = next(two.all(), two.client);
    REQUIRE(in);
    CHECK(code_of(*in) == Errc::unavailable);
    CHECK(contains(text_of(in->as<Reply>()), "host 'beta' is being drained"));
  }
  SECTION("rejected") {
    two.client.start_connect(two.from, "echo@beta");
    auto reject = two.server.simple<Reject>(Op::reject, two.to);
    reject.request = two.request();
    REQUIRE(two.server.send(reject));
    const auto in = next(two.all(), two.client);
    REQUIRE(in);
    CHECK(code_of(*in) == Errc::refused);
  }
  SECTION("not accepted in time: a late accept finds nothing") {
    two.client.start_connect(two.from, "echo@beta", Path::automatic, 1000);
    const uint64_t id = two.request();
    const auto in = next(two.all(), two.client);
    REQUIRE(in);
    CHECK(code_of(*in) == Errc::timed_out);
    for (int i = 0; i < 100; ++i) {
      for (Ni* ni : two.all()) ni->wait(0);
    }
    two.answer_accept(id);
    const auto late = next(two.all(), two.server);
    REQUIRE(late);
    CHECK(code_of(*late) == Errc::not_found);
  }
  CHECK(report(*two.a)["channels"].empty());
}

TEST_CASE("when a cable is pulled, the channels over it end") {
  Two two(kSoonLost);
  const auto [mine, theirs] = two.open();
  two.wire.network.set_link(1, false);
  const auto event = next(two.all(), two.client);
  REQUIRE(event);
  CHECK(event->as<ChannelClosed>().reason == CloseReason::wire_lost);
  CHECK(event->as<ChannelClosed>().channel == mine);
}

TEST_CASE("when the other NI ends, its channels end") {
  Two two;
  const auto [mine, theirs] = two.open();
  SECTION("cleanly") {
    two.b.reset();
    const auto event = next({two.a.get()}, two.client);
    REQUIRE(event);
    CHECK(event->as<ChannelClosed>().reason == CloseReason::ni_stopped);
    CHECK(event->as<ChannelClosed>().channel == mine);
  }
  SECTION("or its client dies") {
    two.server.close();
    const auto event = next(two.all(), two.client);
    REQUIRE(event);
    CHECK(event->as<ChannelClosed>().reason == CloseReason::peer_died);
  }
}

TEST_CASE("everything is given back after channels over a wire") {
  Two two;
  for (int i = 0; i < 20; ++i) {
    const auto [mine, theirs] = two.open();
    for (Ni* ni : two.all()) {
      CHECK(report(*ni)["held"]["engine"]["channels"] == 1);
      CHECK(report(*ni)["held"]["engine"]["tags"] == 1);
      CHECK(report(*ni)["held"]["service"]["tags"] == 1);
      CHECK(report(*ni)["held"]["signalling"]["channels"] == 1);
    }
    auto close = two.client.simple<CloseChannel>(Op::close_channel, two.from);
    close.channel = mine;
    REQUIRE(two.client.send(close));
    REQUIRE(next(two.all(), two.client));
    const auto event = next(two.all(), two.server);
    REQUIRE(event);
    auto other = two.server.simple<CloseChannel>(Op::close_channel, two.to);
    other.channel = event->as<ChannelClosed>().channel;
    REQUIRE(two.server.send(other));
    REQUIRE(next(two.all(), two.server));
  }
  two.client.close();
  two.server.close();
  const auto nothing = [&] { return still_held(report(*two.a)) == 0 && still_held(report(*two.b)) == 0; };
  for (const Nanoseconds end = monotonic_now() + kHang; !nothing() && monotonic_now() < end;) {
    for (Ni* ni : two.all()) ni->wait(0);
  }
  CHECK(nothing());
  CHECK(report(*two.a)["channels"].empty());
  CHECK(report(*two.b)["channels"].empty());
}

TEST_CASE("a static channel comes with the name, and goes with it") {
  Wire wire(2);
  const auto mac = [](uint32_t port) { return drivers::SimNetwork::address_of(port); };
  auto a = wire.start("alpha", 0, {{"fixed", Tag{7}, Tag{9}, mac(1), 0}});
  auto b = wire.start("beta", 1, {{"fixed", Tag{9}, Tag{7}, mac(0), 0}});
  TestClient first(*a), second(*b);
  first.hello();
  second.hello();
  const uint32_t endpoint = first.endpoint();
  Bind bind{};
  bind.header = {Op::bind, endpoint, 77};
  bind.name.set("fixed");
  REQUIRE(first.send(bind));
  // The event about the channel comes before the answer to bind.
  const auto opened = next({a.get(), b.get()}, first), answer = next({a.get(), b.get()}, first);
  REQUIRE((opened && answer));
  CHECK((answer->op() == Op::bind && answer->as<Reply>().code == 0));
  CHECK(opened->op() == Op::channel_opened);
  CHECK(opened->as<ChannelOpened>().channel.kind == ChannelKind::ni);
  CHECK(report(*a)["channels"][0]["static"] == true);
  CHECK(report(*a)["channels"][0]["tag"] == "0x00000007");
  // Another name gets no channel.
  REQUIRE(second.bind(second.endpoint(), "other").code == 0);
  CHECK_FALSE(next({a.get(), b.get()}, second, 5 * kMillisecond));

  REQUIRE(first.ask(first.simple<Unbind>(Op::unbind, endpoint)).code == 0);
  const auto closed = first.next();
  REQUIRE(closed);
  CHECK(closed->op() == Op::channel_closed);
  const uint32_t heir = first.endpoint();
  REQUIRE(first.bind(heir, "fixed").code == 0);
  const auto again = first.next();
  REQUIRE(again);
  CHECK(again->as<Header>().endpoint == heir);
}

TEST_CASE("invalid static channels are refused at the start") {
  Wire wire(1);
  const auto refused = [&](std::vector<StaticChannel> channels) {
    std::vector<std::unique_ptr<Driver>> drivers;
    drivers::SimNetwork network(1);
    drivers.push_back(network.port(0));
    NiOptions options;
    options.service.host = "alpha";
    options.service.channels = std::move(channels);
    const auto ni = Ni::create(std::move(options), std::move(drivers));
    return ni ? std::string() : ni.error().text;
  };
  const MacAddress mac{2, 0, 0, 0, 0, 1};
  CHECK(contains(refused({{"x", Tag{1}, Tag{1}, mac, 1}}), "port 1 does not exist"));
  CHECK(contains(refused({{"x", Tag{0x10000}, Tag{1}, mac, 0}}), "low 16 bits"));
  CHECK(contains(refused({{"x", Tag{1}, Tag{0x10000}, mac, 0}}), "low 16 bits"));
  CHECK(contains(refused({{"x", Tag{1}, Tag{1}, mac, 0}, {"y", Tag{0x10001}, Tag{2}, mac, 0}}), "another static channel"));
  CHECK(contains(refused({{"-x", Tag{1}, Tag{1}, mac, 0}}), "'-x'"));
}

}  // namespace unet::service
