// service_operation_test.cc - the operator's requests: another policy, and draining, while clients have things.
#include <catch2/catch.hpp>

#include <cstdio>
#include <string>

#include "unet/capture_memory.h"
#include "unet/service/service.h"
#include "unet/service/test_client.h"

namespace unet::service {
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
  // What there was goes on.
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

}  // namespace unet::service
