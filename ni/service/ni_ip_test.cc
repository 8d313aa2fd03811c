// ni_ip_test.cc - IP of a whole NI with two engines: on ports of the first, for endpoints that it serves.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "ni/engine/test_wire.h"
#include "ni/service/ip_config.h"
#include "ni/service/ni.h"
#include "unet/base/bytes.h"
#include "unet/context.h"
#include "unet/layer_endpoint.h"
#include "unet/wire/ip.h"
#include "unet/wire/udp.h"

namespace unet::service::ni_ip_test {
namespace {

constexpr Nanoseconds kHang = 60 * kSecond;  // an event that is this late is lost
constexpr uint8_t kUdp = ip::Protocol::kUdp;
const ip::IpAddress kOwn = *ip::parse_ip("10.1.0.1");

// Two wires, an engine each.
struct TwoEngines {
  TwoEngines() {
    char path[] = "/tmp/unet-ni-ip-test-XXXXXX";
    REQUIRE(mkdtemp(path) != nullptr);
    directory = path;
    auto made = make(*parse_ip_port("0=10.1.0.1/24,unprobed"), {}, directory + "/s");
    REQUIRE(made);
    ni = std::move(*made);
    thread = std::thread([this] { stopped_well = ni->run().has_value(); });
  }
  ~TwoEngines() {
    ni->request_stop();
    thread.join();
    CHECK(stopped_well);
    ni.reset();
    rmdir(directory.c_str());
  }
  Result<std::unique_ptr<Ni>> make(const engine::IpInterfaceOptions& ip, std::vector<uint32_t> port_engines, const std::string& socket) {
    NiOptions options;
    options.service.host = "testhost";
    options.service.own_user = geteuid();
    options.service.policy = Policy(geteuid());
    options.socket = socket;
    options.engines = 2;
    options.port_engines = std::move(port_engines);
    options.engine.ip.ports.push_back(ip);
    std::vector<std::unique_ptr<Driver>> drivers;
    for (engine::TestWire& wire : wires) drivers.push_back(std::make_unique<engine::TestPort>(wire));
    return Ni::create(std::move(options), std::move(drivers));
  }

  std::array<engine::TestWire, 2> wires;
  std::string directory;
  std::unique_ptr<Ni> ni;
  std::thread thread;
  bool stopped_well = false;
};

// A datagram of one byte, from `port` to kOwn.
std::vector<std::byte> datagram(uint16_t from, uint16_t to, std::byte content) {
  const IpMessageHeader own{.flags = IpMessageFlags::kFillChecksum};
  std::vector<std::byte> message(sizeof own + ip::kIpv4Bytes + ip::kUdpBytes + 1);
  std::memcpy(message.data(), &own, sizeof own);
  ip::emit_ip_header(message.data() + sizeof own, {.from = kOwn, .to = kOwn, .protocol = kUdp, .hop_limit = 64}, ip::kUdpBytes + 1);
  ip::emit_udp_header(message.data() + sizeof own + ip::kIpv4Bytes, kOwn, kOwn, from, to, Bytes(&content, 1));
  message.back() = content;
  return message;
}

}  // namespace

TEST_CASE("of two engines the first has IP, for endpoints that come to it, and says why it is not for those of the other") {
  TwoEngines two;
  auto context = Context::open(two.directory + "/s", "ni_ip_test");
  REQUIRE(context);
  std::vector<std::unique_ptr<LayerEndpoint>> ends;
  std::vector<Channel> channels;
  for (uint16_t i = 0; i < 2; ++i) {
    auto made = context->create_endpoint();
    REQUIRE(made);
    ends.push_back(std::make_unique<LayerEndpoint>(std::move(*made)));
    const Result<Channel> opened = ends.back()->open_ip();
    REQUIRE(opened);
    channels.push_back(*opened);
    REQUIRE(ends.back()->claim_ip({.protocol = kUdp, .port = static_cast<uint16_t>(4000 + i)}));
  }
  for (uint8_t i = 0; i < 100; ++i) {
    const size_t from = i % 2, to = 1 - from;
    const auto message = datagram(static_cast<uint16_t>(4000 + from), static_cast<uint16_t>(4000 + to), std::byte{i});
    REQUIRE(ends[from]->send(channels[from], message) == SendOutcome::sent);
    Message came;
    bool some = false;
    for (const Nanoseconds until = monotonic_now() + kHang; !some && monotonic_now() < until;) some = ends[to]->receive(came);
    REQUIRE(some);
    CHECK(came.bytes().back() == std::byte{i});
    ends[to]->release(came);
  }
  // The next two have a channel first: the other engine has fewer endpoints. From then on they are its.
  auto made = context->create_endpoint(), other = context->create_endpoint();
  REQUIRE(made);
  REQUIRE(other);
  LayerEndpoint one(std::move(*made));
  REQUIRE(other->bind("other"));
  ConnectOptions options;
  options.path = control::Path::ni;
  options.timeout = kHang;
  const auto pending = one.start_connect("other", options);
  REQUIRE(pending);
  REQUIRE(other->accept(kHang, nullptr));
  const Nanoseconds lost = monotonic_now() + kHang;
  std::optional<Result<Channel>> connected;
  while (!connected && monotonic_now() < lost) connected = one.poll_connect(*pending);
  REQUIRE((connected && *connected));
  const auto refused = one.open_ip();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Errc::invalid_argument);
  CHECK(refused.error().text.find("engine 0 has IP, and the endpoint is engine 1's") != std::string::npos);
  // One that has IP takes channels of the other's endpoints, too.
  REQUIRE(one.bind("one"));
  const auto second = ends[0]->start_connect("one", options);
  REQUIRE(second);
  REQUIRE(one.accept(kHang, nullptr));
  std::optional<Result<Channel>> across;
  for (const Nanoseconds until = monotonic_now() + kHang; !across && monotonic_now() < until;) across = ends[0]->poll_connect(*second);
  REQUIRE((across && *across));
  const std::byte hello[1] = {std::byte{7}};
  REQUIRE(ends[0]->send(**across, hello) == SendOutcome::sent);
  Message came;
  bool some = false;
  for (const Nanoseconds until = monotonic_now() + kHang; !some && monotonic_now() < until;) some = one.receive(came);
  CHECK(some);
}

TEST_CASE("IP on a port of another engine than the first is refused") {
  TwoEngines two;
  const auto of_other = two.make(*parse_ip_port("1=10.1.0.2/24"), {}, "/tmp/unet-ni-ip-test-never");
  REQUIRE_FALSE(of_other);
  CHECK(of_other.error().text.find("port 1 is one of engine 1, and engine 0 has IP") != std::string::npos);
  const auto moved = two.make(*parse_ip_port("0=10.1.0.2/24"), {1, 0}, "/tmp/unet-ni-ip-test-never");
  REQUIRE_FALSE(moved);
  CHECK(moved.error().text.find("port 0 is one of engine 1") != std::string::npos);
}

}  // namespace unet::service::ni_ip_test
