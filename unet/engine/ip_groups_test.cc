// ip_groups_test.cc - groups (multicast) that endpoints claim: the host is in them, and all who claim a group's port get what comes to it.
#include <catch2/catch.hpp>

#include <algorithm>

#include "unet/engine/test_ip.h"

namespace unet::engine {
namespace {

constexpr uint8_t kUdp = ip::Protocol::kUdp;

struct Groups : TestIp {
  const ip::IpAddress group4 = address("239.1.2.3"), group6 = address("ff05::123");

  // As a router forwards it, to the group's station.
  void to_group(const ip::IpAddress& group, uint16_t port, Bytes data) {
    const ip::IpAddress from = group.is_ipv4() ? peer4 : peer6;
    arrive(make_packet({.from = from, .to = group, .protocol = kUdp, .from_port = 4000, .to_port = port}, data), ip::group_station(group));
  }
  // Changes are heeded so often.
  void settle() {
    ni.now += 100 * kMillisecond;
    run();
  }
};

size_t count(TestEndpoint& e) {
  size_t some = 0;
  while (got(e) != nullptr) ++some;
  return some;
}

}  // namespace

TEST_CASE("what comes to a group goes to all who claim its port, and to nobody before and after") {
  Groups t;
  TestEndpoint& a = t.add({});
  TestEndpoint& b = t.add({{.protocol = kUdp, .port = 5353}});  // the port of everything, without the group
  TestEndpoint& c = t.add({});
  for (const ip::IpAddress& group : {t.group4, t.group6}) {
    const auto data = pattern(100, 3);
    t.to_group(group, 5353, data);
    CHECK(count(a) + count(b) + count(c) == 0);
    const uint32_t of_a = t.claim(a, {.protocol = kUdp, .local = group, .port = 5353});
    const uint32_t of_c = t.claim(c, {.protocol = kUdp, .local = group, .port = 5353});
    t.settle();
    t.to_group(group, 5353, data);
    for (TestEndpoint* each : {&a, &c}) {
      const auto message = got(*each);
      REQUIRE(message != nullptr);
      CHECK(message->view.to == group);
      CHECK(std::equal(data.begin(), data.end(), message->view.payload.begin() + ip::kUdpBytes, message->view.payload.end()));
      CHECK(got(*each) == nullptr);
    }
    CHECK(count(b) == 0);
    t.ni.command(ReleaseIp{of_a});
    t.settle();
    t.to_group(group, 5353, data);
    CHECK(count(a) == 0);
    CHECK(count(c) == 1);
    t.to_group(group, 5354, data);  // another port
    CHECK(count(c) == 0);
    t.ni.command(ReleaseIp{of_c});
    t.settle();
    const uint64_t not_listened = t.ni.counter(NiCounter::ip_received);
    t.to_group(group, 5353, data);
    CHECK(count(a) + count(b) + count(c) == 0);
    CHECK(t.ni.counter(NiCounter::ip_received) == not_listened);
  }
  CHECK(t.seen.empty());  // nobody is told that a port of a group is nobody's
}

TEST_CASE("a group is left when the endpoint that claims it goes") {
  Groups t;
  TestEndpoint& a = t.add({});
  t.claim(a, {.protocol = kUdp, .local = t.group4, .port = 9});
  t.run();
  const auto reports = [&] {
    const size_t before = t.frames.size();
    for (int i = 0; i < 50; ++i) {
      t.ni.now += 100 * kMillisecond;
      t.run();
    }
    return std::count_if(t.frames.begin() + static_cast<ptrdiff_t>(before), t.frames.end(), [](const FrameBytes& frame) {
      return frame.size() > 23 && frame[23] == std::byte{2};  // IGMP
    });
  };
  CHECK(reports() >= 1);  // joined
  CHECK(reports() == 0);
  t.ni.command(DetachEndpoint{a.number});
  CHECK(reports() >= 1);  // and left
}

TEST_CASE("what an endpoint sends to a group goes to the wire, and to those of this NI who are in it") {
  const bool ipv4 = GENERATE(true, false);
  Groups t;
  const ip::IpAddress group = ipv4 ? t.group4 : t.group6, own = ipv4 ? t.own4 : t.own6;
  TestEndpoint& a = t.add({{.protocol = kUdp, .port = 53}, {.protocol = kUdp, .local = group, .port = 99}});
  TestEndpoint& b = t.add({{.protocol = kUdp, .local = group, .port = 99}});
  t.run();
  const auto data = pattern(700, 1);
  const Packet packet = make_packet({.from = own, .to = group, .from_port = 53, .to_port = 99}, data);
  t.frames.clear();
  REQUIRE(t.send(a, {}, packet));
  CHECK(count(a) == 1);
  CHECK(count(b) == 1);
  REQUIRE(t.frames.size() == 1);
  const MacAddress station = ip::group_station(group);
  CHECK(std::memcmp(t.frames[0].data(), station.data(), station.size()) == 0);
  REQUIRE(t.send(a, {.flags = IpMessageFlags::kNoLoop}, packet));
  CHECK(count(a) + count(b) == 0);
  CHECK(t.frames.size() == 2);
  CHECK(endpoint_drops(a) == 0);
  // To be in a group is no right to send from its port, nor from its address.
  REQUIRE(t.send(b, {}, make_packet({.from = own, .to = group, .from_port = 99, .to_port = 99}, data)));
  CHECK(b.counter(EndpointCounter::bad_ip_port) == 1);
  REQUIRE(t.send(b, {}, make_packet({.from = group, .to = own, .from_port = 99, .to_port = 53}, data)));
  CHECK(b.counter(EndpointCounter::bad_ip_source) == 1);
  CHECK(count(a) + count(b) == 0);
}

}  // namespace unet::engine
