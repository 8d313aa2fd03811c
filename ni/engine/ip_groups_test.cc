// ip_groups_test.cc - multicast groups that endpoints claim: the host joins them, and all claimants of a port of a group get its packets.
#include <catch2/catch.hpp>

#include <algorithm>

#include "ni/engine/test_ip.h"

namespace unet::engine::ip_groups_test {
namespace {

constexpr uint8_t kUdp = ip::Protocol::kUdp;

struct Groups : TestIp {
  const ip::IpAddress group4 = address("239.1.2.3"), group6 = address("ff05::123");

  // A packet as a router forwards it, to the station of the group.
  void to_group(const ip::IpAddress& group, uint16_t port, Bytes data) {
    const ip::IpAddress from = group.is_ipv4() ? peer4 : peer6;
    arrive(make_packet({.from = from, .to = group, .protocol = kUdp, .from_port = 4000, .to_port = port}, data), ip::group_station(group));
  }
  // Minimum time between changes of groups.
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
  TestEndpoint& b = t.add({{.protocol = kUdp, .port = 5353}});  // the port without the group
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
  CHECK(t.seen.empty());  // no error about an unclaimed port of a group
}

TEST_CASE("a group is left with its last claim, and what changes nothing is no change") {
  Groups t;
  TestEndpoint& a = t.add({});
  TestEndpoint& b = t.add({});
  const auto joined = [&](const ip::IpAddress& group) {
    const uint64_t before = t.ni.counter(NiCounter::ip_received);
    t.to_group(group, 9, {});
    count(a);
    count(b);
    return t.ni.counter(NiCounter::ip_received) != before;
  };
  // The maximum of groups, each with two claims, in two orders.
  std::vector<uint32_t> first, second;
  std::vector<ip::IpAddress> groups;
  for (uint32_t i = 0; i < kIpGroupsMax; ++i) groups.push_back(address(("239.9.0." + std::to_string(1 + i)).c_str()));
  for (const auto& each : groups) first.push_back(t.claim(a, {.protocol = kUdp, .local = each, .port = 9}));
  for (const auto& each : groups) second.push_back(t.claim(b, {.protocol = kUdp, .local = each, .port = 9}));
  t.settle();
  for (const auto& each : groups) CHECK(joined(each));
  for (uint32_t i = 0; i < kIpGroupsMax; i += 2) t.ni.command(ReleaseIp{first[i]});
  for (uint32_t i = 0; i < kIpGroupsMax; i += 3) t.ni.command(ReleaseIp{second[i]});
  t.settle();
  for (uint32_t i = 0; i < kIpGroupsMax; ++i) CHECK(joined(groups[i]) == (i % 6 != 0));
  const uint32_t again = t.claim(a, {.protocol = kUdp, .local = groups[6], .port = 9});
  t.settle();
  CHECK(joined(groups[6]));
  t.ni.command(ReleaseIp{again});
  t.ni.command(DetachEndpoint{a.number});
  t.ni.command(DetachEndpoint{b.number});
  t.settle();
  for (const auto& each : groups) CHECK_FALSE(joined(each));
}

TEST_CASE("who joins and leaves without end keeps nobody from joining") {
  Groups t;
  TestEndpoint& a = t.add({});
  TestEndpoint& b = t.add({});
  uint32_t flood = 0;
  const auto flip = [&](uint32_t i) {
    t.ni.command(ReleaseIp{flood});
    flood = t.claim(a, {.protocol = kUdp, .local = address(("239.8.0." + std::to_string(1 + i % 16)).c_str()), .port = 7});
  };
  flood = t.claim(a, {.protocol = kUdp, .local = address("239.8.0.16"), .port = 7});
  t.settle();
  const auto run = [&](uint32_t milliseconds) {
    for (uint32_t i = 0; i < milliseconds; ++i) {
      t.ni.now += kMillisecond;
      flip(i);
      t.run();
    }
  };
  run(1000);
  t.claim(b, {.protocol = kUdp, .local = t.group4, .port = 9});
  t.frames.clear();
  run(60);
  t.to_group(t.group4, 9, {});
  CHECK(count(b) == 1);
  // At most one report for each change, with everything said twice.
  t.frames.clear();
  run(1000);
  const auto reports = std::count_if(t.frames.begin(), t.frames.end(), [](const FrameBytes& frame) {
    return frame.size() > 23 && frame[23] == std::byte{2};  // IGMP
  });
  CHECK(reports > 0);
  CHECK(reports <= 60);
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
  // Membership gives no right to send from the port or the address of the group.
  REQUIRE(t.send(b, {}, make_packet({.from = own, .to = group, .from_port = 99, .to_port = 99}, data)));
  CHECK(b.counter(EndpointCounter::bad_ip_port) == 1);
  REQUIRE(t.send(b, {}, make_packet({.from = group, .to = own, .from_port = 99, .to_port = 53}, data)));
  CHECK(b.counter(EndpointCounter::bad_ip_source) == 1);
  CHECK(count(a) + count(b) == 0);
}

}  // namespace unet::engine::ip_groups_test
