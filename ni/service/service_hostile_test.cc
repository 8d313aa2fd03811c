// service_hostile_test.cc - clients that break the protocol, do not read, pose as another client, or are many; and nothing of theirs
// remains.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <random>

#include "ni/service/test_client.h"
#include "unet/test_process.h"

namespace unet::service::service_hostile_test {
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

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

}  // namespace

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
    CHECK(contains(text_of(reply), ("version " + std::to_string(control::kVersion)).c_str()));
    CHECK(liar.closed());
  }
  SECTION("another version, whose hello has another size") {
    for (const size_t size : {offsetof(control::Hello, program), sizeof(control::Hello) - 8, sizeof(control::Hello) + 64}) {
      CAPTURE(size);
      TestClient other(*ni);
      std::array<std::byte, sizeof(control::Hello) + 64> bytes{};
      control::Hello hello{};
      hello.header = {Op::hello, 0, 77};
      hello.version = 99;
      std::memcpy(bytes.data(), &hello, sizeof hello);
      REQUIRE(other.send_bytes(bytes.data(), size));
      const auto in = other.next();
      REQUIRE(in);
      const Reply reply = in->as<Reply>();
      CHECK((code_of(reply) == Errc::protocol && reply.header.cookie == 77));
      CHECK(contains(text_of(reply), ("version " + std::to_string(control::kVersion)).c_str()));
      CHECK(contains(text_of(reply), "not 99"));
      CHECK(other.closed());
    }
    CHECK(ni->service().counters().protocol_errors == 0);
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
  const auto report = nlohmann::json::parse(report_text(*ni));
  CHECK(report["names"].size() == 1);
  CHECK(report["endpoints"].size() == 1);
  CHECK(code_of(honest.bind(endpoint, "again")) == Errc::already_exists);
  honest.close();
  require_empty(*ni);
}

TEST_CASE("a client that does not read its events is not drowned in them by another: new requests are refused") {
  auto ni = make_ni();
  TestClient deaf(*ni), caller(*ni);
  deaf.hello();
  caller.hello();
  constexpr int kNames = 30;
  for (int i = 0; i < kNames; ++i) REQUIRE(deaf.bind(deaf.endpoint(), "n" + std::to_string(i)).code == 0);
  const uint32_t mine = caller.endpoint();
  std::map<Errc, int> answers;
  for (uint32_t round = 0; round < 2 * Requests::kBacklogMax; ++round) {
    for (int i = 0; i < kNames; ++i) caller.start_connect(mine, "n" + std::to_string(i), Path::ni, 1);
    for (int i = 0; i < 8; ++i) ni->wait(kMillisecond);
    while (const auto in = caller.receive()) ++answers[code_of(*in)];
  }
  CHECK(answers[Errc::timed_out] > 0);
  CHECK(answers[Errc::refused] > 0);
  CHECK(ni->service().counters().slow_clients == 0);
  CHECK_FALSE(deaf.closed());
  CHECK(nlohmann::json::parse(report_text(*ni))["names"].size() == kNames);
}

TEST_CASE("a client that looks at its count of events finds those that had to wait for room") {
  auto ni = make_ni();
  TestClient client(*ni), server(*ni);
  const Incoming hello = client.hello();
  server.hello();
  const Result<Mapping> page = Mapping::map(hello.descriptors[0].get(), sizeof(ClientPage));
  REQUIRE(page);
  const auto& events = reinterpret_cast<const ClientPage*>(page->data())->control_events.value;
  const uint32_t from = client.endpoint(), to = server.endpoint();
  REQUIRE(server.bind(to, "echo").code == 0);
  constexpr int kChannels = 500;
  for (int i = 0; i < kChannels; ++i) {
    client.start_connect(from, "echo", Path::ni);
    REQUIRE(code_of(server.accept(to, server.next()->as<ConnectRequest>().request)) == Errc::ok);
    REQUIRE(code_of(*client.next()) == Errc::ok);
  }
  server.close();
  for (int i = 0; i < 20; ++i) ni->wait(0);
  // It empties its socket between two turns of the NI, and looks again only if the count says so.
  int got = 0;
  for (uint32_t seen = 0; got < kChannels; ++got) {
    auto in = client.receive();
    if (!in) {
      ni->wait(0);
      REQUIRE(events.load(std::memory_order_acquire) != seen);
      seen = events.load(std::memory_order_acquire);
      in = client.receive();
    }
    REQUIRE(in);
    CHECK(in->op() == Op::channel_closed);
  }
}

TEST_CASE("a client that looks at its count of events finds that its connection was closed") {
  auto ni = make_ni();
  TestClient client(*ni);
  const Incoming hello = client.hello();
  const Result<Mapping> page = Mapping::map(hello.descriptors[0].get(), sizeof(ClientPage));
  REQUIRE(page);
  const auto& events = reinterpret_cast<const ClientPage*>(page->data())->control_events.value;
  const uint32_t seen = events.load(std::memory_order_acquire);
  ni->service().stop(monotonic_now());
  CHECK(events.load(std::memory_order_acquire) != seen);
  CHECK_FALSE(client.receive());
  CHECK(client.closed());
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

TEST_CASE("a client with many requests under way has one served before the next has its turn") {
  auto ni = make_ni();
  TestClient busy(*ni), other(*ni);
  busy.hello();
  other.hello();
  GetDescriptor request{};
  request.header = {Op::get_descriptor, 12345, 1};
  for (int i = 0; i < 40; ++i) REQUIRE(busy.send(request));
  REQUIRE(other.send(request));
  uint32_t polls = 1;  // how many requests one has time for depends on the machine: one at least
  for (ni->service().poll(monotonic_now()); !other.receive() && polls < 40; ++polls) ni->service().poll(monotonic_now());
  CHECK(polls <= 2);
  for (int i = 0; i < 40; ++i) CHECK(busy.next());
}

// Leaves so many answers unread that the next one must wait.
void fill_socket(Ni& ni, TestClient& client) {
  GetDescriptor unknown{};
  unknown.header = {Op::get_descriptor, 12345, 0};
  for (int i = 0; i < 4'000; ++i) {
    client.send(unknown);
    if (i % 16 == 0) ni.wait(0);
  }
}

TEST_CASE("when no descriptors are left, requests fail, and nobody is disconnected") {
  auto ni = make_ni();
  TestClient server(*ni), client(*ni);
  server.hello();
  client.hello();
  const uint32_t to = server.endpoint(), from = client.endpoint();
  REQUIRE(server.bind(to, "echo").code == 0);
  const uint64_t cookie = client.start_connect(from, "echo", Path::local);
  const uint64_t request = server.next()->as<ConnectRequest>().request;
  // Its socket is full, so its answer must wait, with descriptors of its own.
  fill_socket(*ni, client);
  // Enough descriptors for the channel, and none for the answer that waits.
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = 0;
  for (int unused = 0; unused < 5; ++few.rlim_cur) unused += fcntl(static_cast<int>(few.rlim_cur), F_GETFD) < 0 ? 1 : 0;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  auto accept = server.simple<Accept>(Op::accept, to);
  accept.request = request;
  server.send(accept);
  for (int i = 0; i < 4; ++i) ni->wait(0);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);

  const auto accepted = server.next();
  REQUIRE(accepted);
  REQUIRE(code_of(*accepted) == Errc::ok);
  const auto closed = server.next();  // at once: the other side could not be had
  REQUIRE(closed);
  CHECK(closed->op() == Op::channel_closed);
  Errc answer = Errc::ok;
  while (const auto in = client.next()) {
    if (in->as<Header>().cookie == cookie) answer = code_of(*in);
  }
  CHECK(answer == Errc::out_of_memory);
  CHECK_FALSE(client.closed());
  CHECK(ni->service().counters().slow_clients == 0);
  CHECK(nlohmann::json::parse(report_text(*ni))["channels"].size() == 1);  // the server has not closed its side yet
}

// The limit of open files, less than what it was for a while.
struct FewDescriptors {
  explicit FewDescriptors(rlim_t most) {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    few.rlim_cur = most;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before); }
  rlimit before{};
};

TEST_CASE("a user whose connections leave answers with descriptors unread gets no more of them until they are taken") {
  auto ni = make_ni("[[rule]]\nany = true\n");
  TestClient deaf(*ni), same(*ni);
  deaf.hello();
  same.hello();
  const uint32_t unread = deaf.endpoint();
  constexpr int kLimit = 160, kAsked = 60;
  const FewDescriptors few(kLimit);
  for (int i = 0; i < kAsked; ++i) {
    deaf.send(deaf.simple<GetDescriptor>(Op::get_descriptor, unread));
    if (i % 16 == 0) ni->wait(0);
  }
  for (int i = 0; i < 4; ++i) ni->wait(0);
  // Another connection of this user is refused with a reason, and goes on.
  const auto refused = same.create();
  CHECK(code_of(refused) == Errc::out_of_memory);
  CHECK(contains(text_of(refused.as<Reply>()), "unread"));
  CHECK(same.bind(0, "nothing").code != 0);
  CHECK_FALSE(same.closed());
  // When they are taken, all is as before.
  int given = 0, kept_back = 0;
  while (const auto in = deaf.next()) (code_of(*in) == Errc::ok ? given : kept_back) += 1;
  CHECK(given + kept_back == kAsked);
  CHECK(given == kLimit / 4);
  CHECK(code_of(same.create()) == Errc::ok);
  CHECK(deaf.closed() == false);
  // The end of the connection makes no room while its other side keeps what was sent.
  for (int i = 0; i < kAsked; ++i) {
    deaf.send(deaf.simple<GetDescriptor>(Op::get_descriptor, unread));
    if (i % 16 == 0) ni->wait(0);
  }
  deaf.stop_sending();
  const auto go_on = [&] {
    for (const Nanoseconds start = monotonic_now(); monotonic_now() - start < 2 * Clients::kScanEvery;) ni->wait(Clients::kScanEvery);
  };
  go_on();
  CHECK(code_of(same.create()) == Errc::out_of_memory);
  while (deaf.receive()) {
  }
  go_on();
  CHECK(code_of(same.create()) == Errc::ok);
}

TEST_CASE("a region whose answer found no descriptor is there when it is asked for again, and charged once") {
  auto ni = make_ni("[[rule]]\nany = true\nnames = [\"*\"]\n");
  TestClient deaf(*ni), client(*ni), peer(*ni);
  deaf.hello();
  client.hello();
  peer.hello();
  const Pair pair = open_channel(client, peer, Path::local);
  REQUIRE(pair.open);
  const uint32_t unread = deaf.endpoint();
  const auto memory = [&] { return nlohmann::json::parse(report_text(*ni))["users"][0]["memory"].get<uint64_t>(); };
  const uint64_t before = memory();
  auto expose = client.simple<Expose>(Op::expose, pair.server_endpoint);
  auto see = peer.simple<PeerRegion>(Op::peer_region, pair.client_endpoint);
  see.channel = pair.client_channel;
  expose.bytes = 3 * kPage;
  {
    const FewDescriptors few(160);
    for (int i = 0; i < 100; ++i) {
      deaf.send(deaf.simple<GetDescriptor>(Op::get_descriptor, unread));
      ni->wait(0);
    }
    CHECK(code_of(client.call(expose)) == Errc::out_of_memory);
    CHECK(code_of(client.call(expose)) == Errc::out_of_memory);
    while (deaf.next()) {
    }
  }
  CHECK(memory() == before + 3 * kPage);
  CHECK(code_of(peer.call(see)) == Errc::not_found);  // its owner does not have it yet
  expose.bytes = 4 * kPage;
  CHECK(code_of(client.call(expose)) == Errc::already_exists);  // more than is there
  expose.bytes = 2 * kPage + 1;
  const auto exposed = client.call(expose);
  CHECK(code_of(exposed) == Errc::ok);
  CHECK(exposed.descriptors.size() == 1);
  CHECK(exposed.as<Reply>().region.bytes == expose.bytes);
  CHECK(memory() == before + 3 * kPage);
  CHECK(peer.call(see).as<Reply>().region.bytes == expose.bytes);
  CHECK(code_of(client.call(expose)) == Errc::already_exists);
  client.call(client.simple<DestroyEndpoint>(Op::destroy_endpoint, pair.server_endpoint));
  client.turn();
  CHECK(memory() < before);
}

// Uses up all descriptors that the kernel lets an unprivileged process have under way.
class AllUnderWay {
 public:
  AllUnderWay() { UNET_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair_) == 0); }
  ~AllUnderWay() { end(); }
  // False: it did not come to that.
  bool take() {
    std::array<int, 250> descriptors;
    descriptors.fill(STDERR_FILENO);  // not one of the pair: a circle is freed only when the kernel looks for circles
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof descriptors)> control{};
    char byte = 0;
    iovec part{&byte, 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptors);
    std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
    while (sendmsg(pair_[0], &message, MSG_NOSIGNAL) == 1) {
    }
    return errno == ETOOMANYREFS;
  }
  void end() {
    for (int& each : pair_) {
      if (each >= 0) ::close(each);
      each = -1;
    }
  }

 private:
  int pair_[2];
};

// The exit status of a process without privileges: 0 if all was right; 77 if it cannot be without.
int wait_for_descriptors() {
  // The kernel counts by user, so this process takes a user id that no other process has, not even of another run.
  const auto somebody = static_cast<uid_t>(100'000 + getpid());
  if (geteuid() == 0 && setresuid(somebody, somebody, somebody) != 0) return 77;
  rlimit few{.rlim_cur = 300, .rlim_max = 300};
  if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
  auto ni = make_ni();
  TestClient server(*ni), client(*ni);
  server.hello();
  client.hello();
  const uint32_t to = server.endpoint(), from = client.endpoint();
  server.bind(to, "echo");
  const uint64_t cookie = client.start_connect(from, "echo", Path::local);
  const auto request = server.next();
  // Its socket is full, so its answer must wait.
  fill_socket(*ni, client);
  if (!request || code_of(server.accept(to, request->as<ConnectRequest>().request)) != Errc::ok) return 3;
  AllUnderWay all;
  if (!all.take()) return 4;
  bool answered = false;
  const auto listen = [&] {
    while (const auto in = client.receive()) {
      answered = answered || (in->as<Header>().cookie == cookie && code_of(*in) == Errc::ok && in->descriptors.size() == 3);
    }
    ni->wait(20 * kMillisecond);
  };
  for (int i = 0; i < 50; ++i) listen();
  if (answered || client.closed() || nlohmann::json::parse(report_text(*ni))["held"]["service"]["packets_waiting"] == 0) return 5;
  all.end();
  for (const Nanoseconds start = monotonic_now(); !answered && monotonic_now() - start < kHangSeconds * kSecond;) listen();
  return answered && !client.closed() ? 0 : 6;
}

TEST_CASE("an answer that finds no room, and then too many descriptors under way, waits on, and its client is not dropped") {
  ChildProcess process(wait_for_descriptors);
  const int status = process.wait();
  if (status == 77) WARN("skipped: root cannot become a user that is nobody else's");
  CHECK((status == 0 || status == 77));
}

TEST_CASE("everything comes back: descriptors and ids, thousands of times") {
  auto ni = make_ni();
  {
    TestClient server(*ni), client(*ni);
    server.hello();
    client.hello();
    REQUIRE(open_channel(server, client, Path::local).open);
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

TEST_CASE("another user, by the kernel's word", "[root]") {
  if (!can_be(65534) || !can_be(65533) || !can_be(1000)) {
    WARN("skipped: only root can be several users, where there are any");
    return;
  }
  const std::string directory = "/tmp/unet-service-test-" + std::to_string(getpid());
  REQUIRE(mkdir(directory.c_str(), 0755) == 0);
  const std::string path = directory + "/s";
  auto ni = make_ni("[[rule]]\nuid = 65534\nendpoints = 1\n[[rule]]\nuid = 65533\nendpoints = 0\n", path);
  REQUIRE(chmod(path.c_str(), 0666) == 0);  // the policy decides alone
  struct Case {
    uid_t uid;
    Errc hello;
  };
  for (const Case& c : {Case{65534, Errc::ok}, Case{65533, Errc::not_permitted}, Case{1000, Errc::not_permitted}}) {
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
    pid_t ended = 0;
    for (const Nanoseconds start = monotonic_now(); ended == 0 && monotonic_now() - start < kHangSeconds * kSecond;) {
      ni->wait(kMillisecond);
      ended = waitpid(child, &status, WNOHANG);
    }
    REQUIRE(ended == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == (c.hello == Errc::ok ? 100 : 101));
    ::close(pair[0]);
    ::close(pair[1]);
  }
  ni.reset();
  CHECK(rmdir(directory.c_str()) == 0);  // the socket is gone
}

}  // namespace unet::service::service_hostile_test
