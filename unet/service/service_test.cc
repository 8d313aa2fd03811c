// service_test.cc - the service over real sockets with a real engine: every request, in and out of order, from honest and
// lying clients, and what remains when they are gone.
#include "unet/service/service.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <random>

#include "unet/service/test_client.h"

namespace unet::service {
namespace {

using namespace control;
using test::Incoming;
using test::make_ni;
using test::TestClient;

Errc code_of(const Reply& reply) { return static_cast<Errc>(reply.code); }
Errc code_of(const Incoming& in) { return code_of(in.as<Reply>()); }
std::string text_of(const Reply& reply) { return std::string(reply.error.view()); }
bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

nlohmann::json report_of(Ni& ni) {
  return nlohmann::json::parse(ni.service().report({.uid = 0, .pid = 0, .groups = {}}));
}

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

struct Pair {
  uint32_t server_endpoint, client_endpoint, server_channel, client_channel;
  std::vector<Descriptor> server_descriptors, client_descriptors;
};

Pair open_channel(TestClient& server, TestClient& client, Path path, const char* name = "echo") {
  Pair pair{};
  pair.server_endpoint = server.endpoint();
  pair.client_endpoint = client.endpoint();
  REQUIRE(server.bind(pair.server_endpoint, name).code == 0);
  client.start_connect(pair.client_endpoint, name, path);
  const auto event = server.next();
  REQUIRE(event);
  REQUIRE(event->op() == Op::connect_request);
  Incoming accepted = server.accept(pair.server_endpoint, event->as<ConnectRequest>().request);
  REQUIRE(code_of(accepted) == Errc::ok);
  auto connected = client.next();
  REQUIRE(connected);
  REQUIRE(code_of(*connected) == Errc::ok);
  pair.server_channel = accepted.as<Reply>().channel.channel;
  pair.client_channel = connected->as<Reply>().channel.channel;
  pair.server_descriptors = std::move(accepted.descriptors);
  pair.client_descriptors = std::move(connected->descriptors);
  return pair;
}

// After everybody left, nothing is left.
void require_empty(Ni& ni) {
  for (int i = 0; i < 20; ++i) ni.wait(0);
  const auto report = report_of(ni);
  CHECK(report["clients"].empty());
  CHECK(report["endpoints"].empty());
  CHECK(report["channels"].empty());
  CHECK(report["names"].empty());
}

}  // namespace

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

  const Incoming created = client.create();
  REQUIRE(code_of(created) == Errc::ok);
  REQUIRE(created.descriptors.size() == 1);
  const SegmentGeometry geometry = SegmentGeometry::of(TestClient::small());
  CHECK(Mapping::map(created.descriptors[0].get(), geometry.total));
  CHECK(words->control_events.value.load() == before + 1);

  const uint32_t endpoint = created.as<Reply>().create_endpoint.endpoint;
  CHECK(client.bind(endpoint, "echo").code == 0);
  const auto shown = client.call(client.simple<Report>(Op::report, 0));
  REQUIRE(shown.descriptors.size() == 1);
  struct stat st {};
  REQUIRE(fstat(shown.descriptors[0].get(), &st) == 0);
  std::string text(static_cast<size_t>(st.st_size), '\0');
  REQUIRE(pread(shown.descriptors[0].get(), text.data(), text.size(), 0) == st.st_size);
  const auto report = nlohmann::json::parse(text);
  CHECK(report["host"] == "testhost");
  CHECK(report["names"][0]["name"] == "echo");
  CHECK(report["endpoints"][0]["drops"]["no_free_buffer"] == 0);
  CHECK(report["clients"][0]["program"] == "test");
  CHECK((fcntl(shown.descriptors[0].get(), F_GET_SEALS) & F_SEAL_WRITE) != 0);

  CHECK(client.ask(client.simple<Unbind>(Op::unbind, endpoint)).code == 0);
  CHECK(code_of(client.ask(client.simple<Unbind>(Op::unbind, endpoint))) == Errc::not_found);
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
  Pair pair = open_channel(server, client, Path::automatic);
  REQUIRE(pair.server_descriptors.size() == 3);
  REQUIRE(pair.client_descriptors.size() == 3);
  const LocalGeometry geometry = LocalGeometry::of({.depth = 16, .data_bytes = 4 * kMessageMax});
  const auto a = Mapping::map(pair.client_descriptors[0].get(), geometry.total);
  const auto b = Mapping::map(pair.server_descriptors[0].get(), geometry.total);
  REQUIRE(a);
  REQUIRE(b);
  a->data()[geometry.data[0]] = std::byte{42};
  CHECK(b->data()[geometry.data[0]] == std::byte{42});

  // What one side writes, the other wakes of: once per write, and without reading anything.
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
  CHECK(pair.server_descriptors.empty());
  auto expose = server.simple<Expose>(Op::expose, pair.server_endpoint);
  CHECK(code_of(server.ask(expose)) == Errc::invalid_argument);
  expose.bytes = 10'000;
  const Incoming exposed = server.call(expose);
  REQUIRE(code_of(exposed) == Errc::ok);
  CHECK(exposed.as<Reply>().region.bytes == 10'000);
  CHECK(Mapping::map(exposed.descriptors.at(0).get(), 10'000));
  CHECK(code_of(server.ask(expose)) == Errc::already_exists);
  auto peer = client.simple<PeerRegion>(Op::peer_region, pair.client_endpoint);
  peer.channel = pair.client_channel;
  CHECK(code_of(client.ask(peer)) == Errc::invalid_argument);  // not a local channel
  const Incoming wake = server.call(server.simple<GetDescriptor>(Op::get_descriptor, pair.server_endpoint));
  CHECK(wake.descriptors.size() == 1);
  server.close();
  client.close();
  require_empty(*ni);
}

TEST_CASE("the peer of a local channel gets the exposed region") {
  auto ni = make_ni();
  TestClient server(*ni), client(*ni);
  server.hello();
  client.hello();
  const Pair pair = open_channel(server, client, Path::local);
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
    CHECK(report_of(*ni)["channels"].empty());
  }
  SECTION("accept and reject of what was not asked") {
    CHECK(code_of(client.accept(mine, 1)) == Errc::not_found);
    auto reject = client.simple<Reject>(Op::reject, mine);
    reject.request = 1;
    CHECK(client.ask(reject).code == 0);
    // A request to somebody else.
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
  SECTION("more requests than may wait") {
    for (uint32_t i = 0; i < Service::kBacklogMax; ++i) client.start_connect(mine, "echo");
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

TEST_CASE("another user, by the kernel's word", "[root]") {
  if (geteuid() != 0) return;
  const std::string directory = "/tmp/unet-service-test-" + std::to_string(getpid());
  REQUIRE(mkdir(directory.c_str(), 0755) == 0);
  const std::string path = directory + "/s";
  auto ni = make_ni("[[rule]]\nuid = 65534\nendpoints = 1\n[[rule]]\nuid = 65533\nendpoints = 0\n", path);
  REQUIRE(chmod(path.c_str(), 0666) == 0);  // the policy decides alone
  struct Case {
    uid_t uid;
    Errc hello, create;
  };
  for (const Case& c : {Case{65534, Errc::ok, Errc::ok}, Case{65533, Errc::not_permitted, Errc::ok}, Case{1000, Errc::not_permitted, Errc::ok}}) {
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    const pid_t child = fork();
    if (child == 0) {
      if (setgid(c.uid) != 0 || setuid(c.uid) != 0) _exit(9);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path, path.data(), path.size());
      const int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);
      if (connect(s, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) _exit(8);
      Hello hello{};
      hello.header.op = Op::hello;
      hello.version = kVersion;
      if (send(s, &hello, sizeof hello, 0) != sizeof hello) _exit(7);
      Reply reply{};
      if (recv(s, &reply, sizeof reply, 0) != sizeof reply) _exit(6);
      if (reply.code == 0) {
        CreateEndpoint create{};
        create.header.op = Op::create_endpoint;
        create.options = TestClient::small();
        send(s, &create, sizeof create, 0);
        if (recv(s, &reply, sizeof reply, 0) != sizeof reply) _exit(5);
        const int first = reply.code;
        send(s, &create, sizeof create, 0);
        if (recv(s, &reply, sizeof reply, 0) != sizeof reply) _exit(4);
        _exit(first == 0 && static_cast<Errc>(reply.code) == Errc::quota_exceeded ? 100 : 3);
      }
      _exit(static_cast<Errc>(reply.code) == Errc::not_permitted ? 101 : 2);
    }
    int status = 0;
    for (int i = 0; i < 5000 && waitpid(child, &status, WNOHANG) == 0; ++i) ni->wait(kMillisecond);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == (c.hello == Errc::ok ? 100 : 101));
    ::close(pair[0]);
    ::close(pair[1]);
  }
  ni.reset();
  CHECK(rmdir(directory.c_str()) == 0);  // the socket is gone
}

TEST_CASE("whoever breaks the protocol loses the connection, and nobody else") {
  auto ni = make_ni();
  TestClient honest(*ni);
  honest.hello();
  const uint32_t endpoint = honest.endpoint();
  REQUIRE(honest.bind(endpoint, "honest").code == 0);

  SECTION("a request before hello") {
    TestClient liar(*ni);
    CHECK(code_of(liar.create()) == Errc::protocol);
    CHECK(liar.closed());
  }
  SECTION("hello twice") {
    TestClient liar(*ni);
    liar.hello();
    CHECK(code_of(liar.hello()) == Errc::protocol);
    CHECK(liar.closed());
  }
  SECTION("another version") {
    TestClient liar(*ni);
    const Reply reply = liar.hello(99).as<Reply>();
    CHECK(code_of(reply) == Errc::protocol);
    CHECK(contains(text_of(reply), "version 1"));
    CHECK(liar.closed());
  }
  SECTION("a text longer than its room") {
    TestClient liar(*ni);
    liar.hello();
    Bind bind{};
    bind.header = {Op::bind, liar.endpoint(), 1};
    bind.name.length = 65535;
    CHECK(code_of(liar.ask(bind)) == Errc::protocol);
    CHECK(liar.closed());
  }
  SECTION("descriptors nobody asked for") {
    TestClient liar(*ni);
    liar.hello();
    int pair[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    REQUIRE(ni->service().adopt_connection(Descriptor(pair[0])));
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
    Hello hello{};
    iovec part{&hello, sizeof hello};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = 0;
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    REQUIRE(sendmsg(pair[1], &message, 0) == sizeof hello);
    TestClient watcher(*ni, Descriptor(pair[1]));
    CHECK(watcher.closed());
  }
  SECTION("packets of every length, every op, random content") {
    std::mt19937_64 random(3);
    std::vector<std::byte> bytes(control::kPacketMax + 64);
    uint64_t answered = 0;
    for (const bool greeted : {false, true}) {
      for (uint32_t op = 0; op < 110; op = op == 14 ? 99 : op + 1) {
        for (size_t size = 1; size <= bytes.size(); size += 1 + random() % 7) {
          TestClient liar(*ni);
          if (greeted) liar.hello();
          for (std::byte& b : bytes) b = static_cast<std::byte>(random() % (random() % 2 == 0 ? 256 : 3));
          std::memcpy(bytes.data(), &op, sizeof op);
          REQUIRE(liar.send_bytes(bytes.data(), size));
          liar.turn(3);
          answered += liar.receive().has_value();
        }
      }
    }
    CHECK(answered > 1000);
    for (int i = 0; i < 100; ++i) ni->wait(0);
  }
  // The honest one is as it was.
  const auto report = report_of(*ni);
  CHECK(report["names"].size() == 1);
  CHECK(report["endpoints"].size() == 1);
  CHECK(code_of(honest.bind(endpoint, "again")) == Errc::already_exists);
  honest.close();
  require_empty(*ni);
}

TEST_CASE("a client that does not read its events is disconnected, not waited for") {
  auto ni = make_ni();
  TestClient deaf(*ni), caller(*ni);
  deaf.hello();
  caller.hello();
  constexpr int kNames = 30;
  for (int i = 0; i < kNames; ++i) REQUIRE(deaf.bind(deaf.endpoint(), "n" + std::to_string(i)).code == 0);
  const uint32_t mine = caller.endpoint();
  for (uint32_t round = 0; round < Service::kBacklogMax; ++round) {
    for (int i = 0; i < kNames; ++i) caller.start_connect(mine, "n" + std::to_string(i), Path::ni);
    for (int i = 0; i < 8; ++i) ni->wait(0);
    while (caller.receive()) {
    }
  }
  for (int i = 0; i < 20; ++i) ni->wait(0);
  CHECK(ni->service().counters().slow_clients == 1);
  CHECK(report_of(*ni)["clients"].size() == 1);
  CHECK(report_of(*ni)["names"].empty());
}

TEST_CASE("a client that does not read its replies is not served further, and harms nobody") {
  auto ni = make_ni();
  TestClient deaf(*ni), other(*ni);
  deaf.hello();
  other.hello();
  GetDescriptor request{};
  request.header = {Op::get_descriptor, 12345, 0};
  int sent = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (deaf.send(request)) ++sent;
    if (i % 16 == 0) ni->wait(0);
  }
  CHECK(sent > 100);
  CHECK(ni->service().counters().slow_clients == 0);
  CHECK(code_of(other.create()) == Errc::ok);
  // It wakes up and takes everything.
  int answers = 0;
  while (deaf.next()) ++answers;
  CHECK(answers == sent);
}

TEST_CASE("everything comes back: descriptors and ids, thousands of times") {
  auto ni = make_ni();
  {
    TestClient server(*ni), client(*ni);
    server.hello();
    client.hello();
    open_channel(server, client, Path::local);
  }
  require_empty(*ni);
  const size_t before = open_descriptors();
  for (int i = 0; i < 500; ++i) {
    TestClient server(*ni), client(*ni);
    server.hello();
    client.hello();
    const Pair pair = open_channel(server, client, i % 2 == 0 ? Path::local : Path::ni);
    server.call(server.simple<GetDescriptor>(Op::get_descriptor, pair.server_endpoint));
    auto expose = client.simple<Expose>(Op::expose, pair.client_endpoint);
    expose.bytes = 100;
    client.call(expose);
    client.start_connect(pair.client_endpoint, "echo");
    client.turn(1);
  }
  require_empty(*ni);
  CHECK(open_descriptors() == before);
}

TEST_CASE("4,096 endpoints of one client") {
  auto ni = make_ni();
  TestClient client(*ni);
  client.hello();
  std::set<uint32_t> ids, doorbells;
  for (int i = 0; i < 4096; ++i) {
    const Reply reply = client.create().as<Reply>();
    REQUIRE(reply.code == 0);
    ids.insert(reply.create_endpoint.endpoint);
    doorbells.insert(reply.create_endpoint.doorbell);
  }
  CHECK(ids.size() == 4096);
  CHECK(doorbells.size() == 4096);
  client.close();
  for (int i = 0; i < 200; ++i) ni->wait(0);
  require_empty(*ni);
}

TEST_CASE("the listening socket: private, guarded, replaced when stale, removed at the end") {
  const std::string directory = "/tmp/unet-listener-test-" + std::to_string(getpid());
  REQUIRE(mkdir(directory.c_str(), 0700) == 0);
  const std::string path = directory + "/s";
  {
    const auto first = Listener::open(path, "");
    REQUIRE(first);
    struct stat st {};
    REQUIRE(lstat(path.c_str(), &st) == 0);
    CHECK((st.st_mode & 0777) == 0600);
    const auto second = Listener::open(path, "");
    REQUIRE_FALSE(second);
    CHECK(second.error().code == Errc::already_exists);
    CHECK(contains(second.error().text, "is running at"));
  }
  CHECK(access(path.c_str(), F_OK) != 0);
  {
    // One that died: its socket is there, nobody listens.
    const Descriptor dead(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  CHECK(access(path.c_str(), F_OK) == 0);
  {
    const auto again = Listener::open(path, "");
    CHECK(again);
  }
  // Somebody's file is not ours to remove.
  const Descriptor file(open(path.c_str(), O_CREAT | O_WRONLY, 0600));
  const auto refused = Listener::open(path, "");
  REQUIRE_FALSE(refused);
  CHECK(contains(refused.error().text, "is not a socket"));
  CHECK(access(path.c_str(), F_OK) == 0);
  unlink(path.c_str());
  const auto group = Listener::open(path, "no-such-group-here");
  REQUIRE_FALSE(group);
  CHECK(contains(group.error().text, "no group"));
  CHECK_FALSE(Listener::open(directory + "/" + std::string(120, 'x'), ""));
  CHECK_FALSE(Listener::open(directory + "/missing/s", ""));
  CHECK(rmdir(directory.c_str()) == 0);
}

}  // namespace unet::service
