// service_users_test.cc - what the service tells clients of each other's users, whatever they or it know of users.
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <memory>

#include "ni/service/test_client.h"
#include "unet/capture_memory.h"
#include "unet/test_process.h"

namespace unet::service::service_users_test {
namespace {

using namespace control;
using namespace test;

// The exit status of a process: 0 if clients of two users that its NI cannot tell apart are not taken for one, nor for the NI's own user;
// 77 if it may not try.
int meet_unknown_users() {
  int pairs[2][2];
  for (int i = 0; i < 2; ++i) {
    const auto make = [&] { return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pairs[i]); };
    if (as_user(static_cast<uid_t>(65532 + i), make) != 0) return 1;
  }
  if (unshare(CLONE_NEWUSER) != 0) return 77;
  auto ni = make_ni("[[rule]]\nany = true\nnames = ['*']\n");
  for (auto& pair : pairs) {
    if (!ni->service().adopt_connection(Descriptor(pair[0]))) return 2;
  }
  TestClient one(*ni, Descriptor(pairs[0][1])), other(*ni, Descriptor(pairs[1][1]));
  one.hello();
  other.hello();
  const uint32_t asked = one.endpoint(), asker = other.endpoint();
  if (one.bind(asked, "asked").code != 0) return 3;
  other.start_connect(asker, "asked");
  const auto event = one.next();
  if (!event || event->as<ConnectRequest>().peer_uid != 65534) return 4;
  const Incoming accepted = one.accept(asked, event->as<ConnectRequest>().request);
  const auto connected = other.next();
  if (code_of(accepted) != Errc::ok || !connected || code_of(*connected) != Errc::ok) return 5;
  const bool same = event->as<ConnectRequest>().same_user != 0 || accepted.as<Reply>().channel.same_user != 0 ||
                    connected->as<Reply>().channel.same_user != 0;
  if (same) return 6;

  // The NI's own user is unknown here, too: a user that has its number is not its operator.
  auto drain = other.simple<Drain>(Op::drain, 0);
  drain.on = 1;
  if (code_of(other.call(drain)) != Errc::not_permitted) return 7;
  CaptureStart start{};
  start.header = {Op::capture_start, asked, 0};
  start.channel = ~uint32_t{0};
  start.port = -1;
  start.snap_length = 64;
  start.bytes = kCaptureBytesMin;
  if (code_of(other.call(start)) != Errc::not_found) return 8;
  const auto report = nlohmann::json::parse(other.report());
  if (report["endpoints"].size() != 1 || report["endpoints"][0]["endpoint"] != asker || report["clients"].size() != 1) return 9;
  start.header.endpoint = asker;
  const Incoming capture = other.call(start);
  if (code_of(capture) != Errc::ok) return 10;
  auto stop = one.simple<CaptureStop>(Op::capture_stop, 0);
  stop.capture = capture.as<Reply>().capture.capture;
  return code_of(one.call(stop)) == Errc::not_found && code_of(other.call(stop)) == Errc::ok ? 0 : 11;
}

}  // namespace

TEST_CASE("both sides of a channel learn whether the other has the same user") {
  const control::Path path = GENERATE(control::Path::local, control::Path::ni);
  const bool same = !can_be(65533) || GENERATE(true, false);
  auto ni = make_ni("[[rule]]\nany = true\nnames = ['*']\n");
  TestClient server(*ni);
  auto client = as_user(same ? geteuid() : 65533, [&] { return std::make_unique<TestClient>(*ni); });
  server.hello();
  client->hello();
  const auto channel = [&](TestClient& from, TestClient& to, const char* name) {
    const uint32_t asker = from.endpoint(), asked = to.endpoint();
    REQUIRE(to.bind(asked, name).code == 0);
    from.start_connect(asker, name, path);
    const auto event = to.next();
    REQUIRE(event);
    const Incoming accepted = to.accept(asked, event->as<ConnectRequest>().request);
    const auto connected = from.next();
    REQUIRE(connected);
    REQUIRE(code_of(accepted) == Errc::ok);
    REQUIRE(code_of(*connected) == Errc::ok);
    CHECK(event->as<ConnectRequest>().same_user == (same ? 1 : 0));
    CHECK(accepted.as<Reply>().channel.same_user == (same ? 1 : 0));
    CHECK(connected->as<Reply>().channel.same_user == (same ? 1 : 0));
    CHECK(accepted.as<Reply>().channel.peer_pid == (same ? getpid() : -1));
    CHECK(connected->as<Reply>().channel.peer_pid == (same ? getpid() : -1));
  };
  channel(*client, server, "server");
  channel(server, *client, "client");
}

// After the other: what an NI in this process has learned of its namespace does not count in another.
TEST_CASE("users that the NI's user namespace does not know are not taken for one, nor for its operator", "[root]") {
  if (!can_be(65532) || !can_be(65533)) {
    WARN("skipped: only root can be several users, where there are any");
    return;
  }
  ChildProcess process(meet_unknown_users);
  const int status = process.wait();
  if (status == 77) WARN("user namespaces are not allowed here");
  CHECK((status == 0 || status == 77));
}

}  // namespace unet::service::service_users_test
