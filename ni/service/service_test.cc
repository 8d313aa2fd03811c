// service_test.cc - the service over real sockets with a real engine: every request, in and out of order, and what remains
// when the clients are gone.
#include "ni/service/service.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <set>

#include "ni/service/test_client.h"

namespace unet::service::service_test {
namespace {

using namespace control;
using namespace test;

// All clients have left: the NI holds nothing.
void require_empty(Ni& ni) {
  for (int i = 0; i < 20; ++i) ni.wait(0);
  const auto report = nlohmann::json::parse(report_text(ni));
  CHECK(report["clients"].empty());
  CHECK(report["endpoints"].empty());
  CHECK(report["channels"].empty());
  CHECK(report["names"].empty());
  CHECK(still_held(report) == 0);
}

}  // namespace

TEST_CASE("an endpoint sends by its weight against others of its user, which the report shows") {
  auto ni = make_ni();
  TestClient client(*ni);
  const auto page = Mapping::map(client.hello().descriptors.at(0).get(), sizeof(ClientPage));
  REQUIRE(page);
  auto& bells = *reinterpret_cast<ClientPage*>(page->data());
  Flood one(client, 1), three(client, 3);
  const auto report = nlohmann::json::parse(report_text(*ni));
  for (const auto& endpoint : report["endpoints"]) CHECK(endpoint["weight"] == (endpoint["endpoint"] == three.id ? 3 : 1));
  CHECK(report["endpoints"].size() == 2);
  one.fill(bells);
  three.fill(bells);
  while (three.taken() < Flood::kDepth / 2) ni->poll();
  CHECK(static_cast<double>(three.taken()) / static_cast<double>(one.taken()) == Approx(3).epsilon(0.05));
}

TEST_CASE("hello, endpoint, name, report") {
  auto ni = make_ni();
  TestClient client(*ni);
  const Incoming hello = client.hello();
  REQUIRE(code_of(hello) == Errc::ok);
  REQUIRE(hello.descriptors.size() == 2);
  CHECK(hello.as<Reply>().hello.version == kVersion);
  const auto page = Mapping::map(hello.descriptors[0].get(), sizeof(ClientPage));
  REQUIRE(page);
  const auto* words = reinterpret_cast<const ClientPage*>(page->data());
  const uint32_t before = words->control_events.value.load();

  Incoming created = client.create();
  REQUIRE(code_of(created) == Errc::ok);
  REQUIRE(created.descriptors.size() == 1);
  const SegmentGeometry geometry = SegmentGeometry::of(TestClient::small());
  CHECK(Mapping::map(created.descriptors[0].get(), geometry.total));
  CHECK(words->control_events.value.load() == before + 1);

  const uint32_t endpoint = created.as<Reply>().create_endpoint.endpoint;
  CHECK(client.bind(endpoint, "echo").code == 0);
  const auto report = nlohmann::json::parse(client.report());
  CHECK(report["host"] == "testhost");
  CHECK(report["names"][0]["name"] == "echo");
  CHECK(report["endpoints"][0]["drops"]["no_free_buffer"] == 0);
  CHECK(report["clients"][0]["program"] == "test");
  REQUIRE(report["users"].size() == 1);
  const auto& user = report["users"][0];
  CHECK(user["uid"] == geteuid());
  CHECK(user["connections"] == 1);
  CHECK(user["endpoints"] == 1);
  CHECK(user["channels"] == 0);
  CHECK(user["memory"] == geometry.total);
  for (const char* part : {"engine", "service"}) {
    CHECK(report["held"][part]["clients"] == 1);
    CHECK(report["held"][part]["endpoints"] == 1);
  }
  CHECK(report["held"]["service"]["names"] == 1);

  CHECK(client.ask(client.simple<Unbind>(Op::unbind, endpoint)).code == 0);
  CHECK(code_of(client.ask(client.simple<Unbind>(Op::unbind, endpoint))) == Errc::not_found);
  created.descriptors.clear();  // the memory is charged until then
  CHECK(client.ask(client.simple<DestroyEndpoint>(Op::destroy_endpoint, endpoint)).code == 0);
  CHECK(code_of(client.ask(client.simple<DestroyEndpoint>(Op::destroy_endpoint, endpoint))) == Errc::not_found);
  client.close();
  require_empty(*ni);
}

TEST_CASE("shared memory cannot be made smaller or larger by a client") {
  auto ni = make_ni();
  TestClient client(*ni);
  const Incoming hello = client.hello();
  const Incoming created = client.create();
  for (const int fd : {hello.descriptors[0].get(), created.descriptors[0].get()}) {
    CHECK(ftruncate(fd, 0) == -1);
    CHECK(errno == EPERM);
    CHECK(ftruncate(fd, 1 << 30) == -1);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1);
  }
}

TEST_CASE("a local channel: the same memory, wake descriptors crosswise") {
  auto ni = make_ni();
  TestClient server(*ni), client(*ni);
  server.hello();
  client.hello();
  const Pair pair = open_channel(server, client, Path::automatic);
  REQUIRE(pair.open);
  REQUIRE(pair.server_descriptors.size() == 3);
  REQUIRE(pair.client_descriptors.size() == 3);
  const LocalGeometry geometry = LocalGeometry::of({.depth = 16, .data_bytes = 4 * kMessageMax});
  const auto a = Mapping::map(pair.client_descriptors[0].get(), geometry.total);
  const auto b = Mapping::map(pair.server_descriptors[0].get(), geometry.total);
  REQUIRE(a);
  REQUIRE(b);
  a->data()[geometry.data[0]] = std::byte{42};
  CHECK(b->data()[geometry.data[0]] == std::byte{42});

  // A write by one side wakes the other: once per write, and without reading anything.
  const auto woken = [](int descriptor) {
    epoll_event event{};
    return epoll_wait(descriptor, &event, 1, 0) == 1;
  };
  const uint64_t one = 1;
  CHECK_FALSE(woken(pair.server_descriptors[1].get()));
  REQUIRE(write(pair.client_descriptors[2].get(), &one, sizeof one) == sizeof one);
  CHECK_FALSE(woken(pair.client_descriptors[1].get()));
  CHECK(woken(pair.server_descriptors[1].get()));
  CHECK_FALSE(woken(pair.server_descriptors[1].get()));
  REQUIRE(write(pair.server_descriptors[2].get(), &one, sizeof one) == sizeof one);
  CHECK(woken(pair.client_descriptors[1].get()));
  // The sleeping side cannot reach the eventfd: neither read nor write goes through.
  CHECK(write(pair.server_descriptors[1].get(), &one, sizeof one) == -1);

  SECTION("closed by one side, then by the other") {
    auto close = client.simple<CloseChannel>(Op::close_channel, pair.client_endpoint);
    close.channel = pair.client_channel;
    CHECK(client.ask(close).code == 0);
    const auto event = server.next();
    REQUIRE(event);
    CHECK(event->op() == Op::channel_closed);
    CHECK(event->as<ChannelClosed>().reason == CloseReason::closed_by_peer);
    auto other = server.simple<CloseChannel>(Op::close_channel, pair.server_endpoint);
    other.channel = pair.server_channel;
    CHECK(server.ask(other).code == 0);
    CHECK(code_of(server.ask(other)) == Errc::not_found);
  }
  SECTION("the peer dies") {
    client.close();
    server.turn();
    const auto event = server.next();
    REQUIRE(event);
    CHECK(event->as<ChannelClosed>().channel == pair.server_channel);
    CHECK(event->as<ChannelClosed>().reason == CloseReason::peer_died);
  }
  server.close();
  client.close();
  require_empty(*ni);
}

TEST_CASE("a channel through the engine, and an exposed region") {
  auto ni = make_ni();
  TestClient server(*ni), client(*ni);
  server.hello();
  client.hello();
  const Pair pair = open_channel(server, client, Path::ni);
  REQUIRE(pair.open);
  CHECK(pair.server_descriptors.empty());
  auto expose = server.simple<Expose>(Op::expose, pair.server_endpoint);
  CHECK(code_of(server.ask(expose)) == Errc::invalid_argument);
  expose.bytes = 10'000;
  Incoming exposed = server.call(expose);
  REQUIRE(code_of(exposed) == Errc::ok);
  CHECK(exposed.as<Reply>().region.bytes == 10'000);
  CHECK(Mapping::map(exposed.descriptors.at(0).get(), 10'000));
  CHECK(code_of(server.ask(expose)) == Errc::already_exists);
  auto peer = client.simple<PeerRegion>(Op::peer_region, pair.client_endpoint);
  peer.channel = pair.client_channel;
  CHECK(code_of(client.ask(peer)) == Errc::invalid_argument);  // not a local channel
  const Incoming wake = server.call(server.simple<GetDescriptor>(Op::get_descriptor, pair.server_endpoint));
  CHECK(wake.descriptors.size() == 1);
  exposed.descriptors.clear();
  server.close();
  client.close();
  require_empty(*ni);
}

TEST_CASE("the numbers of channels stay small, and are reused late") {
  auto ni = make_ni();
  TestClient client(*ni), server(*ni);
  client.hello();
  server.hello();
  const uint32_t to = server.endpoint(), from = client.endpoint();
  REQUIRE(server.bind(to, "echo").code == 0);
  std::set<uint32_t> numbers;
  for (int i = 0; i < 200; ++i) {
    client.start_connect(from, "echo", Path::ni);
    REQUIRE(code_of(server.accept(to, server.next()->as<ConnectRequest>().request)) == Errc::ok);
    auto close = client.simple<CloseChannel>(Op::close_channel, from);
    close.channel = client.next()->as<Reply>().channel.channel;
    CHECK(numbers.insert(close.channel).second == (i < 64));
    CHECK(close.channel < 64);  // the engine has a place for each number up to the largest
    REQUIRE(client.ask(close).code == 0);
    close.header.endpoint = to;
    close.channel = server.next()->as<ChannelClosed>().channel;
    REQUIRE(server.ask(close).code == 0);
  }
}

TEST_CASE("the peer of a local channel gets the exposed region") {
  auto ni = make_ni();
  TestClient server(*ni), client(*ni);
  server.hello();
  client.hello();
  const Pair pair = open_channel(server, client, Path::local);
  REQUIRE(pair.open);
  auto peer = client.simple<PeerRegion>(Op::peer_region, pair.client_endpoint);
  peer.channel = pair.client_channel;
  CHECK(code_of(client.ask(peer)) == Errc::not_found);  // nothing exposed yet
  auto expose = server.simple<Expose>(Op::expose, pair.server_endpoint);
  expose.bytes = 4096;
  const Incoming mine = server.call(expose);
  const Incoming theirs = client.call(peer);
  REQUIRE(theirs.descriptors.size() == 1);
  const auto a = Mapping::map(mine.descriptors[0].get(), 4096), b = Mapping::map(theirs.descriptors[0].get(), 4096);
  REQUIRE(a);
  REQUIRE(b);
  b->data()[100] = std::byte{9};
  CHECK(a->data()[100] == std::byte{9});
}

TEST_CASE("requests that make no sense get a sentence and change nothing") {
  auto ni = make_ni();
  TestClient client(*ni), other(*ni);
  client.hello();
  other.hello();
  const uint32_t mine = client.endpoint(), theirs = other.endpoint();
  REQUIRE(other.bind(theirs, "theirs").code == 0);

  SECTION("endpoints of others and of nobody") {
    for (const uint32_t id : {theirs, 77u, ~0u}) {
      CHECK(code_of(client.bind(id, "x")) == Errc::not_found);
      CHECK(code_of(client.ask(client.simple<DestroyEndpoint>(Op::destroy_endpoint, id))) == Errc::not_found);
      CHECK(code_of(client.ask(client.simple<GetDescriptor>(Op::get_descriptor, id))) == Errc::not_found);
      auto close = client.simple<CloseChannel>(Op::close_channel, id);
      CHECK(code_of(client.ask(close)) == Errc::not_found);
    }
  }
  SECTION("names") {
    CHECK(code_of(client.bind(mine, "")) == Errc::invalid_argument);
    CHECK(code_of(client.bind(mine, "-x")) == Errc::invalid_argument);
    CHECK(code_of(client.bind(mine, "a b")) == Errc::invalid_argument);
    CHECK(code_of(client.bind(mine, std::string(64, 'a'))) == Errc::invalid_argument);
    CHECK(client.bind(mine, std::string(63, 'a')).code == 0);
    CHECK(code_of(client.bind(mine, "second")) == Errc::already_exists);
    CHECK(code_of(client.bind(client.endpoint(), "theirs")) == Errc::already_exists);
  }
  SECTION("options") {
    struct Case {
      EndpointOptions options;
      const char* says;
    };
    EndpointOptions o = TestClient::small();
    std::vector<Case> cases;
    const auto with = [&](auto change, const char* says) {
      EndpointOptions changed = o;
      change(changed);
      cases.push_back({changed, says});
    };
    with([](auto& x) { x.send_depth = 0; }, "send_depth 0 is not between 4 and 32768");
    with([](auto& x) { x.receive_depth = ~0u; }, "receive_depth 4294967295");
    with([](auto& x) { x.buffers = 3; }, "buffers 3");
    with([](auto& x) { x.buffer_size = 300; }, "not a multiple of 64");
    with([](auto& x) { x.buffer_size = ~0u; }, "buffer_size");
    with([](auto& x) { x.send_bytes = 1; }, "send_bytes 1");
    with([](auto& x) { x.weight = 0; }, "weight 0 is not between 1 and 100");
    with([](auto& x) { x.weight = 101; }, "weight 101 is not between 1 and 100");
    with([](auto& x) { x.weight = ~0u; }, "weight 4294967295");
    with([](auto& x) { x.buffers = kBuffersMax, x.buffer_size = kBufferSizeMax; }, "larger than");
    for (const Case& c : cases) {
      const Reply reply = client.create(c.options).as<Reply>();
      CHECK(code_of(reply) == Errc::invalid_argument);
      INFO(text_of(reply));
      CHECK(contains(text_of(reply), c.says));
    }
  }
  SECTION("targets") {
    const auto connect = [&](std::string_view target, Path path = Path::automatic) {
      client.start_connect(mine, target, path);
      return client.next()->as<Reply>();
    };
    CHECK(code_of(connect("nobody")) == Errc::not_found);
    CHECK(code_of(connect("")) == Errc::invalid_argument);
    CHECK(code_of(connect("x@")) == Errc::invalid_argument);
    CHECK(code_of(connect("@host")) == Errc::invalid_argument);
    CHECK(code_of(connect("a@b@c")) == Errc::invalid_argument);
    CHECK(code_of(connect("theirs", static_cast<Path>(9))) == Errc::invalid_argument);
    CHECK(code_of(connect("theirs@elsewhere", Path::local)) == Errc::invalid_argument);
    const Reply no_wire = connect("theirs@elsewhere");
    CHECK(code_of(no_wire) == Errc::unavailable);
    CHECK(contains(text_of(no_wire), "no wire"));
    CHECK(nlohmann::json::parse(report_text(*ni))["channels"].empty());
  }
  SECTION("accept and reject of what was not asked") {
    CHECK(code_of(client.accept(mine, 1)) == Errc::not_found);
    auto reject = client.simple<Reject>(Op::reject, mine);
    reject.request = 1;
    CHECK(client.ask(reject).code == 0);
    // A request to an endpoint of another client.
    client.start_connect(mine, "theirs");
    const auto event = other.next();
    REQUIRE(event);
    CHECK(code_of(client.accept(mine, event->as<ConnectRequest>().request)) == Errc::not_found);
    CHECK(event->as<ConnectRequest>().peer_pid == getpid());
    CHECK(event->as<ConnectRequest>().peer_uid == static_cast<int32_t>(geteuid()));
  }
  CHECK_FALSE(client.closed());
  CHECK_FALSE(other.closed());
}

TEST_CASE("rejected, timed out, and gone while asked") {
  auto ni = make_ni();
  TestClient server(*ni), client(*ni);
  server.hello();
  client.hello();
  const uint32_t endpoint = server.endpoint(), mine = client.endpoint();
  REQUIRE(server.bind(endpoint, "echo").code == 0);
  SECTION("rejected") {
    client.start_connect(mine, "echo");
    auto reject = server.simple<Reject>(Op::reject, endpoint);
    reject.request = server.next()->as<ConnectRequest>().request;
    CHECK(server.ask(reject).code == 0);
    CHECK(code_of(*client.next()) == Errc::refused);
  }
  SECTION("timed out: a late accept finds nothing") {
    client.start_connect(mine, "echo", Path::automatic, 20);
    const uint64_t request = server.next()->as<ConnectRequest>().request;
    usleep(40'000);
    CHECK(code_of(*client.next()) == Errc::timed_out);
    CHECK(code_of(server.accept(endpoint, request)) == Errc::not_found);
  }
  SECTION("the asked endpoint is destroyed") {
    client.start_connect(mine, "echo");
    REQUIRE(server.next());
    CHECK(server.ask(server.simple<DestroyEndpoint>(Op::destroy_endpoint, endpoint)).code == 0);
    CHECK(code_of(*client.next()) == Errc::refused);
  }
  SECTION("the asked client dies") {
    client.start_connect(mine, "echo");
    REQUIRE(server.next());
    server.close();
    CHECK(code_of(*client.next()) == Errc::refused);
  }
  SECTION("the asking client dies") {
    client.start_connect(mine, "echo");
    const uint64_t request = server.next()->as<ConnectRequest>().request;
    client.close();
    server.turn();
    CHECK(code_of(server.accept(endpoint, request)) == Errc::not_found);
  }
  SECTION("the asking endpoint is destroyed") {
    const uint64_t cookie = client.start_connect(mine, "echo");
    REQUIRE(server.next());
    CHECK(client.ask(client.simple<DestroyEndpoint>(Op::destroy_endpoint, mine)).header.cookie == cookie);
    const auto destroyed = client.next_packet();
    REQUIRE(destroyed);
    CHECK(destroyed->op() == Op::destroy_endpoint);
  }
  SECTION("more requests than may wait") {
    for (uint32_t i = 0; i < Requests::kBacklogMax; ++i) client.start_connect(mine, "echo");
    client.turn(40);
    client.start_connect(mine, "echo");
    const auto refused = client.next();
    REQUIRE(refused);
    CHECK(code_of(*refused) == Errc::refused);
  }
  client.close();
  server.close();
  require_empty(*ni);
}

TEST_CASE("quota and rights of the policy") {
  auto ni = make_ni("[[rule]]\nany = true\nendpoints = 2\nchannels = 2\nmemory = \"8M\"\nnames = [\"ok/*\"]\n");
  TestClient client(*ni), other(*ni);
  client.hello();
  other.hello();
  const uint32_t a = client.endpoint(), b = client.endpoint();
  const Reply third = other.create().as<Reply>();  // the quota is the user's, not the connection's
  CHECK(code_of(third) == Errc::quota_exceeded);
  CHECK(contains(text_of(third), "2 in use"));
  CHECK(code_of(client.bind(a, "secret")) == Errc::not_permitted);
  CHECK(client.bind(a, "ok/1").code == 0);
  auto expose = client.simple<Expose>(Op::expose, b);
  expose.bytes = 64 << 20;
  CHECK(code_of(client.ask(expose)) == Errc::quota_exceeded);
  // Both ends of one channel are this user's whole quota of channels.
  client.start_connect(b, "ok/1");
  const auto event = client.next();
  REQUIRE(event->op() == Op::connect_request);
  REQUIRE(code_of(client.accept(a, event->as<ConnectRequest>().request)) == Errc::ok);
  REQUIRE(code_of(*client.next()) == Errc::ok);
  client.start_connect(b, "ok/1");
  CHECK(code_of(*client.next()) == Errc::quota_exceeded);
  CHECK(client.ask(client.simple<DestroyEndpoint>(Op::destroy_endpoint, b)).code == 0);
  CHECK(code_of(other.create()) == Errc::ok);  // given back
  client.close();
  other.close();
  require_empty(*ni);
}

TEST_CASE("a user without rights gets nothing") {
  auto ni = make_ni("[[rule]]\nany = true\nendpoints = 0\n");
  TestClient client(*ni);
  const Incoming hello = client.hello();
  CHECK(code_of(hello) == Errc::not_permitted);
  CHECK(hello.descriptors.empty());
  CHECK(client.closed());
  require_empty(*ni);
}

}  // namespace unet::service::service_test
