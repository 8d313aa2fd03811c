// service_emulated_test.cc - endpoints without queues, as the service knows them: their owner, their limits, and how they end.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "ni/service/test_client.h"

namespace unet::service::service_emulated_test {
namespace {

using namespace test;
using control::Op;
using control::Path;
using nlohmann::json;

control::Reply emulate(TestClient& client, uint32_t carrier) {
  return client.ask(client.simple<control::CreateEmulated>(Op::create_emulated, carrier));
}

json endpoint_in(const json& report, uint32_t id) {
  for (const json& each : report["endpoints"]) {
    if (each["endpoint"] == id) return each;
  }
  return {};
}

// A channel from `from` of `client` to `to` of `server`, which has the name.
struct Opened {
  control::ChannelInfo accepted, connected;
};
Opened open(TestClient& server, uint32_t to, TestClient& client, uint32_t from, std::string_view name, Path path = Path::automatic) {
  client.start_connect(from, name, path);
  const auto event = server.next();
  REQUIRE(event);
  REQUIRE(event->op() == Op::connect_request);
  CHECK(event->as<control::ConnectRequest>().header.endpoint == to);
  const Incoming accepted = server.accept(to, event->as<control::ConnectRequest>().request);
  REQUIRE(code_of(accepted) == Errc::ok);
  const auto connected = client.next();
  REQUIRE(connected);
  REQUIRE(code_of(*connected) == Errc::ok);
  return {accepted.as<control::Reply>().channel, connected->as<control::Reply>().channel};
}

TEST_CASE("an emulated endpoint has a name, requests and channels, whose numbers are its carrier's, and nothing in the engine") {
  const auto ni = make_ni();
  TestClient server(*ni), client(*ni);
  server.hello();
  client.hello();
  const uint32_t carrier = server.endpoint(), other = client.endpoint();
  const control::Reply first = emulate(server, carrier), second = emulate(server, carrier);
  REQUIRE(code_of(first) == Errc::ok);
  const uint32_t a = first.create_endpoint.endpoint, b = second.create_endpoint.endpoint;
  CHECK(a != b);
  CHECK(a >= kEndpointsMax);
  CHECK(code_of(server.bind(a, "a")) == Errc::ok);
  CHECK(code_of(server.bind(b, "a")) == Errc::already_exists);
  CHECK(code_of(server.bind(b, "b")) == Errc::ok);
  CHECK(code_of(server.bind(carrier, "carrier")) == Errc::ok);

  // Channels go through the NI, unless a side asks for a local channel.
  const Opened to_a = open(server, a, client, other, "a"), to_b = open(server, b, client, other, "b", Path::local);
  const Opened to_carrier = open(server, carrier, client, other, "carrier", Path::ni);
  CHECK(to_a.accepted.kind == control::ChannelKind::ni);
  CHECK(to_b.accepted.kind == control::ChannelKind::local);
  for (const control::ChannelInfo& each : {to_a.accepted, to_a.connected, to_b.accepted, to_b.connected}) CHECK(each.same_user == 1);
  CHECK(std::set<uint32_t>{to_a.accepted.channel, to_b.accepted.channel, to_carrier.accepted.channel}.size() == 3);

  const json report = json::parse(report_text(*ni));
  CHECK(report["held"]["engine"]["endpoints"] == 2);
  CHECK(report["held"]["service"]["endpoints"] == 2);
  CHECK(report["held"]["service"]["emulated"] == 2);
  CHECK(report["users"][0]["emulated"] == 2);
  CHECK(endpoint_in(report, a)["carrier"] == carrier);
  CHECK(endpoint_in(report, a)["name"] == "a");
  CHECK(endpoint_in(report, a)["segment_bytes"] == 0);
  CHECK(endpoint_in(report, a)["channels"] == 1);
  CHECK(endpoint_in(report, carrier)["carrier"].is_null());
  CHECK(endpoint_in(report, carrier)["emulated"] == 2);

  // A channel belongs to the endpoint that opened it, though both have their numbers of one carrier.
  control::CloseChannel close{};
  close.header = {Op::close_channel, b, 0};
  close.channel = to_a.accepted.channel;
  CHECK(code_of(server.ask(close)) == Errc::not_found);
  close.header.endpoint = carrier;
  CHECK(code_of(server.ask(close)) == Errc::not_found);
  close.header.endpoint = a;
  CHECK(code_of(server.ask(close)) == Errc::ok);
  const auto told = client.next();
  REQUIRE(told);
  CHECK(told->as<control::ChannelClosed>().channel == to_a.connected.channel);

  CHECK(code_of(server.ask(server.simple<control::DestroyEndpoint>(Op::destroy_endpoint, a))) == Errc::ok);
  CHECK(code_of(server.bind(a, "again")) == Errc::not_found);
  CHECK(code_of(server.bind(carrier, "x")) == Errc::already_exists);
}

TEST_CASE("what an emulated endpoint cannot have is refused with the reason") {
  const auto ni = make_ni();
  TestClient client(*ni), stranger(*ni);
  client.hello();
  stranger.hello();
  const uint32_t carrier = client.endpoint();
  const uint32_t emulated = emulate(client, carrier).create_endpoint.endpoint;
  const auto refused = [](const control::Reply& reply, Errc code, const char* part) {
    INFO(text_of(reply));
    return code_of(reply) == code && contains(text_of(reply), part);
  };
  auto expose = client.simple<control::Expose>(Op::expose, emulated);
  expose.bytes = 4096;
  CHECK(refused(client.ask(expose), Errc::invalid_argument, "is emulated and has no region"));
  const auto descriptor = client.simple<control::GetDescriptor>(Op::get_descriptor, emulated);
  CHECK(refused(client.ask(descriptor), Errc::invalid_argument, "wake descriptor"));
  CHECK(refused(emulate(client, emulated), Errc::invalid_argument, "is emulated itself"));
  CHECK(refused(emulate(client, 12345), Errc::not_found, "is not one of yours"));
  CHECK(refused(emulate(stranger, carrier), Errc::not_found, "is not one of yours"));
  CHECK(code_of(stranger.bind(emulated, "x")) == Errc::not_found);
  control::CaptureStart capture{};
  capture.header = {Op::capture_start, emulated, 0};
  capture.channel = ~uint32_t{0};
  capture.port = -1;
  capture.snap_length = 64;
  capture.bytes = 1 << 20;
  CHECK(refused(client.ask(capture), Errc::invalid_argument, "which carries it"));
  EndpointOptions options = TestClient::small();
  options.emulated = 1;
  CHECK(code_of(client.create(options)) == Errc::invalid_argument);
  ni->service().drain(true);
  CHECK(refused(emulate(client, carrier), Errc::unavailable, "drained"));
}

TEST_CASE("emulated endpoints have a quota of their own, over all of a user's connections, and give it back") {
  const auto ni = make_ni("[[rule]]\nany = true\nemulated = 5\nendpoints = 2\nnames = [\"*\"]\n");
  TestClient one(*ni), two(*ni);
  one.hello();
  two.hello();
  const uint32_t carrier_one = one.endpoint(), carrier_two = two.endpoint();
  std::vector<uint32_t> mine;
  for (int i = 0; i < 3; ++i) mine.push_back(emulate(one, carrier_one).create_endpoint.endpoint);
  for (int i = 0; i < 2; ++i) CHECK(code_of(emulate(two, carrier_two)) == Errc::ok);
  const control::Reply refused = emulate(two, carrier_two);
  CHECK(code_of(refused) == Errc::quota_exceeded);
  CHECK(contains(text_of(refused), "5 in use, 1 more wanted, 5 allowed"));
  CHECK(code_of(one.ask(one.simple<control::DestroyEndpoint>(Op::destroy_endpoint, mine[1]))) == Errc::ok);
  CHECK(code_of(emulate(two, carrier_two)) == Errc::ok);
  // Emulated endpoints end with their carrier, and a client that connects to one gets an error.
  TestClient& asker = two;
  REQUIRE(code_of(one.bind(mine[0], "a")) == Errc::ok);
  asker.start_connect(carrier_two, "a");
  one.turn();
  CHECK(code_of(one.ask(one.simple<control::DestroyEndpoint>(Op::destroy_endpoint, carrier_one))) == Errc::ok);
  const auto answer = asker.next();
  REQUIRE(answer);
  CHECK(code_of(*answer) == Errc::refused);
  CHECK(code_of(one.bind(mine[2], "b")) == Errc::not_found);
  for (int i = 0; i < 2; ++i) CHECK(code_of(emulate(two, carrier_two)) == Errc::ok);
}

TEST_CASE("a client that ends leaves nothing of its emulated endpoints, whatever they were doing") {
  const auto ni = make_ni();
  TestClient server(*ni);
  server.hello();
  const uint32_t carrier = server.endpoint();
  const uint32_t target = emulate(server, carrier).create_endpoint.endpoint;
  server.bind(target, "target");
  for (int round = 0; round < 3; ++round) {
    TestClient client(*ni);
    client.hello();
    const uint32_t own = client.endpoint();
    for (int i = 0; i < 100; ++i) {
      const uint32_t id = emulate(client, own).create_endpoint.endpoint;
      CHECK(code_of(client.bind(id, "n" + std::to_string(i))) == Errc::ok);
      // One of them has a channel, some wait for one.
      if (i == 0) open(server, target, client, id, "target");
      if (i > 90) client.start_connect(id, "target");
    }
    client.turn();
    client.close();
    client.turn();
    for (int i = 0; i < 100 && json::parse(report_text(*ni))["clients"].size() != 1; ++i) server.turn(1);
    const json held = json::parse(report_text(*ni))["held"];
    CHECK(held["service"]["emulated"] == 1);
    CHECK(held["service"]["names"] == 1);
    CHECK(held["service"]["requests"] == 0);
    CHECK(held["engine"]["endpoints"] == 1);
    CHECK(held["engine"]["channels"] == 0);
    for (int i = 0; i < 20; ++i) {
      while (server.receive()) {}
      server.turn();
    }
  }
  server.close();
  for (int i = 0; i < 100 && !ni->service().idle(); ++i) ni->wait(0);
  CHECK(still_held(json::parse(report_text(*ni))) == 0);
}

TEST_CASE("all emulated endpoints of a carrier together have as many channels as one endpoint") {
  const auto ni = make_ni();
  TestClient client(*ni);
  client.hello();
  const uint32_t carrier = client.endpoint(), server = client.endpoint();
  const uint32_t a = emulate(client, carrier).create_endpoint.endpoint, b = emulate(client, carrier).create_endpoint.endpoint;
  REQUIRE(code_of(client.bind(server, "s")) == Errc::ok);
  std::set<uint32_t> numbers;
  for (uint32_t i = 0; i < kChannelsPerEndpointMax; ++i) {
    client.start_connect(i % 2 == 0 ? a : b, "s", Path::ni);
    const auto event = client.next();
    REQUIRE(event);
    REQUIRE(code_of(client.accept(server, event->as<control::ConnectRequest>().request)) == Errc::ok);
    const auto connected = client.next();
    REQUIRE(connected);
    numbers.insert(connected->as<control::Reply>().channel.channel);
  }
  CHECK(numbers.size() == kChannelsPerEndpointMax);
  client.start_connect(b, "s", Path::ni);
  const auto refused = client.next();
  REQUIRE(refused);
  CHECK(code_of(*refused) == Errc::quota_exceeded);
  CHECK(contains(text_of(refused->as<control::Reply>()), "emulated endpoints of a connection have together"));
}

}  // namespace
}  // namespace unet::service::service_emulated_test
