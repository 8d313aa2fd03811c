// service_operation_test.cc - the operator's requests: another policy, and draining, while clients have things.
#include <unistd.h>

#include <catch2/catch.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include "ni/service/service.h"
#include "ni/service/test_client.h"
#include "unet/capture_memory.h"

namespace unet::service::service_operation_test {
namespace {

using namespace control;
using namespace test;

// A policy file of this test, removed with it.
class PolicyFile {
 public:
  PolicyFile() {
    const int descriptor = mkstemp(path_.data());
    REQUIRE(descriptor >= 0);
    close(descriptor);
  }
  ~PolicyFile() { unlink(path_.c_str()); }
  void write(const std::string& text) const {
    std::FILE* file = std::fopen(path_.c_str(), "w");
    REQUIRE(file != nullptr);
    REQUIRE(std::fputs(text.c_str(), file) >= 0);
    REQUIRE(std::fclose(file) == 0);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/unet-policy-XXXXXX";
};

std::unique_ptr<Ni> make_ni_of(uid_t own_user, const std::string& policy_file) {
  NiOptions options;
  options.service.host = "testhost";
  options.service.own_user = own_user;
  options.service.policy = *Policy::load(policy_file, own_user);
  options.service.policy_file = policy_file;
  return std::move(*Ni::create(std::move(options), {}));
}

Reply reload(TestClient& client) { return client.ask(client.simple<PolicyReload>(Op::policy_reload, 0)); }

}  // namespace

TEST_CASE("a new policy counts for new requests, and takes nothing away") {
  const PolicyFile file;
  file.write("[[rule]]\nany = true\nendpoints = 2\nnames = [\"old/*\"]\n");
  auto ni = make_ni_of(geteuid(), file.path());
  TestClient client(*ni);
  client.hello();
  const uint32_t first = client.endpoint(), second = client.endpoint();
  CHECK(client.bind(first, "old/1").code == 0);
  CHECK(code_of(client.create()) == Errc::quota_exceeded);

  file.write("[[rule]]\nany = true\nendpoints = 1\nnames = [\"new/*\"]\n");
  CHECK(code_of(client.create()) == Errc::quota_exceeded);
  CHECK(code_of(client.bind(second, "new/1")) == Errc::not_permitted);  // not read yet
  REQUIRE(code_of(reload(client)) == Errc::ok);
  CHECK(code_of(client.bind(second, "old/2")) == Errc::not_permitted);
  CHECK(client.bind(second, "new/1").code == 0);
  CHECK(report_text(*ni).find("\"old/1\"") != std::string::npos);
  // Two are there, one is allowed: none is taken away, and the next one comes when there is room for it.
  CHECK(code_of(client.create()) == Errc::quota_exceeded);
  CHECK(client.ask(client.simple<DestroyEndpoint>(Op::destroy_endpoint, second)).code == 0);
  CHECK(code_of(client.create()) == Errc::quota_exceeded);
  CHECK(client.ask(client.simple<DestroyEndpoint>(Op::destroy_endpoint, first)).code == 0);
  CHECK(code_of(client.create()) == Errc::ok);

  file.write("[[rule]]\nany = true\nendpoints = 0\n");
  REQUIRE(code_of(reload(client)) == Errc::ok);
  TestClient late(*ni);
  CHECK(code_of(late.hello()) == Errc::not_permitted);
  CHECK_FALSE(client.closed());
}

TEST_CASE("limits and weights are those of the policy, also of a new one, and are shown") {
  const PolicyFile file;
  file.write("[[rule]]\nany = true\nweight = 3\nmessages_per_s = 7\nendpoint_bytes_per_s = 2048\n");
  auto ni = make_ni_of(geteuid(), file.path());
  TestClient client(*ni);
  client.hello();
  client.endpoint();
  const auto shown = [&](const std::string& text) { return report_text(*ni).find(text) != std::string::npos; };
  CHECK(shown("\"weight\":3"));
  CHECK(shown("\"messages_per_s\":7"));
  CHECK(shown("\"endpoint_bytes_per_s\":2048"));
  CHECK(shown("\"bytes_per_s\":null"));
  CHECK(shown("\"burst_ms\":10"));
  file.write("[[rule]]\nany = true\nbytes_per_s = \"1M\"\nburst_ms = 20\n");
  REQUIRE(code_of(reload(client)) == Errc::ok);
  CHECK(shown("\"weight\":1"));
  CHECK(shown("\"messages_per_s\":null"));
  CHECK(shown("\"bytes_per_s\":1048576"));
  CHECK(shown("\"burst_ms\":20"));
}

TEST_CASE("a broken policy file changes nothing and is named with its line") {
  const PolicyFile file;
  file.write("[[rule]]\nany = true\nendpoints = 1\n");
  auto ni = make_ni_of(geteuid(), file.path());
  TestClient client(*ni);
  client.hello();
  for (const char* text : {"[[rule]]\nany = true\nendpoints = \"many\"\n", "[[rule]]\nany = true\nendpoints = = 3\n"}) {
    file.write(text);
    const Reply reply = reload(client);
    CHECK(code_of(reply) == Errc::invalid_argument);
    CHECK(contains(text_of(reply), (file.path() + ":3: ").c_str()));
    CHECK(contains(text_of(reply), "stays as it was"));
    CHECK(text_of(reply).find('\n') == std::string::npos);
  }
  unlink(file.path().c_str());
  CHECK(contains(text_of(reload(client)), "No such file"));
  CHECK(code_of(client.create()) == Errc::ok);
  CHECK(code_of(client.create()) == Errc::quota_exceeded);
}

TEST_CASE("a drained network interface takes nothing new, and ends nothing") {
  auto ni = make_ni();
  TestClient server(*ni), client(*ni);
  server.hello();
  client.hello();
  const Pair pair = open_channel(server, client, Path::ni);
  REQUIRE(pair.open);
  auto drain = client.simple<Drain>(Op::drain, 0);
  drain.on = 2;
  CHECK(code_of(client.ask(drain)) == Errc::invalid_argument);
  CHECK(report_text(*ni).find("\"draining\":false") != std::string::npos);
  drain.on = 1;
  REQUIRE(code_of(client.ask(drain)) == Errc::ok);
  CHECK(report_text(*ni).find("\"draining\":true") != std::string::npos);

  const Reply refused = client.create().as<Reply>();
  CHECK(code_of(refused) == Errc::unavailable);
  CHECK(contains(text_of(refused), "being drained"));
  client.start_connect(pair.client_endpoint, "echo");
  const auto answer = client.next();
  REQUIRE(answer);
  CHECK(code_of(*answer) == Errc::unavailable);
  CHECK_FALSE(server.receive());  // never hears of it
  CHECK(code_of(client.bind(pair.client_endpoint, "another")) == Errc::unavailable);
  TestClient late(*ni);
  CHECK(code_of(late.hello()) == Errc::ok);  // to look, and to be told
  CHECK(code_of(late.create()) == Errc::unavailable);
  // Existing channels go on.
  CHECK(report_text(*ni).find("\"open\"") != std::string::npos);

  drain.on = 0;
  REQUIRE(code_of(client.ask(drain)) == Errc::ok);
  CHECK(code_of(client.create()) == Errc::ok);
  CHECK(code_of(client.bind(pair.client_endpoint, "another")) == Errc::ok);
}

TEST_CASE("a request from before may still be accepted while draining") {
  auto ni = make_ni();
  TestClient server(*ni), client(*ni);
  server.hello();
  client.hello();
  const uint32_t to = server.endpoint(), from = client.endpoint();
  REQUIRE(server.bind(to, "echo").code == 0);
  client.start_connect(from, "echo");
  const auto event = server.next();
  REQUIRE(event);
  ni->service().drain(true);
  CHECK(code_of(server.accept(to, event->as<ConnectRequest>().request)) == Errc::ok);
  CHECK(code_of(*client.next()) == Errc::ok);
}

TEST_CASE("without a policy file there is nothing to read again") {
  auto ni = make_ni();
  TestClient client(*ni);
  client.hello();
  CHECK(contains(text_of(reload(client)), "--policy"));
}

TEST_CASE("only root and the owner operate") {
  if (geteuid() == 0) {
    WARN("root may do everything: tests/system/operation.py tries another user");
    return;
  }
  const PolicyFile file;
  file.write("[[rule]]\nany = true\n");
  auto ni = make_ni_of(geteuid() + 1, file.path());
  TestClient client(*ni);
  client.hello();
  const Reply reply = reload(client);
  CHECK(code_of(reply) == Errc::not_permitted);
  CHECK(contains(text_of(reply), "only root and user"));
  auto drain = client.simple<Drain>(Op::drain, 0);
  drain.on = 1;
  CHECK(code_of(client.ask(drain)) == Errc::not_permitted);
}

TEST_CASE("a report shows a user the names of others, and not whose they are") {
  auto ni = make_ni();
  TestClient client(*ni);
  client.hello();
  REQUIRE(client.bind(client.endpoint(), "found").code == 0);
  const auto seen_by = [&](uid_t user) { return nlohmann::json::parse(ni->service().report({.uid = user, .pid = 0, .groups = {}})); };
  const auto own = seen_by(geteuid()), others = seen_by(geteuid() + 1);
  REQUIRE(own["names"].size() == 1);
  CHECK(own["names"][0]["pid"] == getpid());
  CHECK(own["endpoints"].size() == 1);
  CHECK(others["names"] == nlohmann::json::array({{{"name", "found"}}}));
  for (const char* part : {"clients", "endpoints", "channels", "users", "held", "captures", "counters", "engines"}) {
    CAPTURE(part);
    CHECK(others[part].empty());
  }
}

TEST_CASE("captures have a maximum, are charged to their user, and give everything back when they stop") {
  auto ni = make_ni();
  TestClient client(*ni);
  client.hello();
  const auto charged = [&] {
    client.turn();
    const auto users = nlohmann::json::parse(report_text(*ni))["users"];
    return users[0]["memory"].get<uint64_t>();
  };
  const uint64_t before = charged();
  CaptureStart start{};
  start.header = {Op::capture_start, ~uint32_t{0}, 0};
  start.channel = ~uint32_t{0};
  start.port = -1;
  start.snap_length = 64;
  start.bytes = kCaptureBytesMin;
  for (uint32_t i = 0; i < kCapturesMax; ++i) {
    const Incoming answer = client.call(start);
    REQUIRE(code_of(answer) == Errc::ok);
    CHECK(answer.as<Reply>().capture.capture == i);
  }
  CHECK(charged() == before + kCapturesMax * (kCapturePage + uint64_t{kCaptureBytesMin}));
  const Reply one_more = client.ask(start);
  CHECK(code_of(one_more) == Errc::quota_exceeded);
  CHECK(contains(text_of(one_more), "16 at a time"));
  for (uint32_t i = 0; i < kCapturesMax; ++i) {
    CaptureStop stop{};
    stop.header.op = Op::capture_stop;
    stop.capture = i;
    CHECK(client.ask(stop).code == 0);
  }
  CHECK(charged() == before);
  CHECK(code_of(client.call(start)) == Errc::ok);
}

namespace {

constexpr uid_t kOrdinary = 54'321;  // and those after it

// A connection of another user, as the kernel says.
TestClient client_of(Ni& ni, uid_t user) {
  auto connection = as_user(user, [&] { return ni.connect(); });
  REQUIRE(connection);
  return {ni, std::move(*connection)};
}

// The answer to a capture of the client's endpoint, which begins at `now`.
Reply start_capture(TestClient& client, Ni& ni, uint32_t endpoint, Nanoseconds now) {
  CaptureStart start{};
  start.header = {Op::capture_start, endpoint, now};
  start.channel = ~uint32_t{0};
  start.port = -1;
  start.snap_length = 64;
  start.bytes = kCaptureBytesMin;
  REQUIRE(client.send(start));
  ni.service().poll(now);
  const auto answer = client.receive();
  REQUIRE(answer);
  return answer->as<Reply>();
}

void stop_capture(TestClient& client, Ni& ni, uint32_t capture, Nanoseconds now) {
  CaptureStop stop{};
  stop.header = {Op::capture_stop, 0, now};
  stop.capture = capture;
  REQUIRE(client.send(stop));
  ni.service().poll(now);
  const auto answer = client.receive();
  REQUIRE((answer && code_of(*answer) == Errc::ok));
  ni.engine().poll(now);
  ni.service().poll(now);
}

}  // namespace

TEST_CASE("ordinary users have one capture each and four together, and begin ten in a second") {
  if (!can_be(kOrdinary) || !can_be(kOrdinary + 4)) {
    WARN("skipped: only root can be several users, where there are any");
    return;
  }
  auto ni = make_ni("[[rule]]\nany = true\nnames = [\"*\"]\n");
  std::vector<TestClient> clients;
  std::vector<uint32_t> endpoints;
  for (uid_t user = 0; user < 5; ++user) {
    clients.push_back(client_of(*ni, kOrdinary + user));
    REQUIRE(code_of(clients.back().hello()) == Errc::ok);
    endpoints.push_back(clients.back().endpoint());
  }
  constexpr Nanoseconds kEvery = kSecond / 10;
  Nanoseconds now = 1000 * kSecond;
  std::vector<uint32_t> captures;
  for (uint32_t user = 0; user < 4; ++user, now += kEvery) {
    const Reply begun = start_capture(clients[user], *ni, endpoints[user], now);
    REQUIRE(code_of(begun) == Errc::ok);
    captures.push_back(begun.capture.capture);
    const Reply second = start_capture(clients[user], *ni, endpoints[user], now + kEvery);
    CHECK(code_of(second) == Errc::quota_exceeded);
    CHECK(contains(text_of(second), "one of each"));
  }
  const Reply fifth = start_capture(clients[4], *ni, endpoints[4], now);
  CHECK(code_of(fifth) == Errc::quota_exceeded);
  CHECK(contains(text_of(fifth), "4 of ordinary users"));

  // Captures of ordinary users begin a tenth of a second apart, whichever user asks.
  uint32_t begun = 0;
  stop_capture(clients[0], *ni, captures[0], now);
  for (const Nanoseconds end = now + kSecond; now < end; now += kSecond / 100) {
    const Reply answer = start_capture(clients[4], *ni, endpoints[4], now);
    if (code_of(answer) != Errc::ok) {
      CHECK(code_of(answer) == Errc::unavailable);
      continue;
    }
    ++begun;
    stop_capture(clients[4], *ni, answer.capture.capture, now);
  }
  CHECK(begun == 10);
}

}  // namespace unet::service::service_operation_test
