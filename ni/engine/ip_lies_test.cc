// ip_lies_test.cc - packets of endpoints that lie, use ports of others, or go everywhere: each ends under its name, and harms no other
// endpoint.
#include <catch2/catch.hpp>

#include "ni/engine/share.h"
#include "ni/engine/test_ip.h"

namespace unet::engine::ip_lies_test {
namespace {

constexpr uint8_t kTcp = ip::Protocol::kTcp, kUdp = ip::Protocol::kUdp;

}  // namespace

TEST_CASE("who has a port may not speak to a peer that another's claim has") {
  TestIp t;
  TestEndpoint& all = t.add({{.protocol = kUdp, .port = 53}});
  TestEndpoint& one = t.add({{.protocol = kUdp, .port = 53, .remote = t.peer4, .remote_port = 4000}});
  const auto packet = [&](uint16_t to) {
    return make_packet({.from = t.own4, .to = t.peer4, .from_port = 53, .to_port = to}, pattern(9, 1));
  };
  REQUIRE(t.send(all, {}, packet(4000)));
  CHECK(all.counter(EndpointCounter::bad_ip_port) == 1);
  CHECK(t.seen.empty());
  REQUIRE(t.send(all, {}, packet(4001)));
  REQUIRE(t.send(one, {}, packet(4000)));
  CHECK(t.seen.size() == 2);
  CHECK(endpoint_drops(one) == 0);
}

TEST_CASE("a user who sends to ever new hosts of the link soon asks for none more, and others do") {
  TestIp t;
  const auto add = [&](uint32_t user, uint16_t port) -> TestEndpoint& {
    TestEndpoint& e =
        t.ni.add_endpoint({.send_depth = 64, .receive_depth = 64, .buffers = 256, .buffer_size = 2048, .send_bytes = 256 * 1024}, 1, user);
    t.ni.command(OpenIp{e.number, TestIp::kChannel});
    t.claim(e, {.protocol = kUdp, .port = port});
    t.ni.run();
    return e;
  };
  TestEndpoint& flood = add(1, 51);
  TestEndpoint& second = add(1, 52);  // of the same user: more endpoints give no more lookups
  TestEndpoint& other = add(2, 53);
  const auto send = [&](TestEndpoint& e, uint16_t port, uint32_t host) {
    ip::IpAddress to = t.own6;
    to.bytes[13] = 1;
    to.bytes[14] = static_cast<uint8_t>(host >> 8);
    to.bytes[15] = static_cast<uint8_t>(host);
    REQUIRE(t.send(e, {}, make_packet({.from = t.own6, .to = to, .from_port = port, .to_port = 4000}, {})));
  };
  const auto refused = [](const TestEndpoint& e) { return e.counter(EndpointCounter::ip_many_neighbours); };
  constexpr uint32_t kMost = Share::kNeighboursPerSecond;
  for (uint32_t i = 0; i < kMost + 100; ++i) {
    if (i % 2 == 0) send(flood, 51, i);
    else send(second, 52, i);
  }
  CHECK(refused(flood) + refused(second) == 100);
  send(flood, 51, 0);  // a resolved neighbour costs no lookup
  CHECK(refused(flood) + refused(second) == 100);
  send(other, 53, 5000);
  CHECK(refused(other) == 0);
  REQUIRE(t.send(other, {}, make_packet({.from = t.own6, .to = t.peer6, .from_port = 53, .to_port = 4000}, {})));
  CHECK(t.seen.size() == 1);
  t.ni.now += 100 * kMillisecond;
  for (uint32_t i = 6000; i < 6050; ++i) send(flood, 51, i);
  CHECK(refused(flood) + refused(second) == 100 + 50 - 6);  // time gives some back
}

TEST_CASE("a message that lies is dropped by name") {
  TestIp t;
  TestEndpoint& e = t.add({{.protocol = kUdp, .port = 53}, {.protocol = kTcp, .port = 53, .remote = t.peer4, .remote_port = 4000}});
  TestEndpoint& victim = t.add({{.protocol = kUdp, .port = 54}});
  const Packet udp4 = make_packet({.from = t.own4, .to = t.peer4, .from_port = 53, .to_port = 4000}, pattern(40, 1));
  const Packet udp6 = make_packet({.from = t.own6, .to = t.peer6, .from_port = 53, .to_port = 4000}, pattern(40, 1));
  const Packet tcp4 = make_packet({.from = t.own4, .to = t.peer4, .protocol = kTcp, .from_port = 53, .to_port = 4000}, pattern(40, 1));
  const auto changed = [](Packet packet, size_t at, int value) {
    packet[at] = static_cast<std::byte>(value);
    return packet;
  };
  const auto expect = [&](EndpointCounter why, const IpMessageHeader& header, const Packet& packet) {
    const uint64_t before = e.counter(why), drops = endpoint_drops(e);
    REQUIRE(t.send(e, header, packet));
    CAPTURE(kEndpointCounterNames[static_cast<size_t>(why)]);
    CHECK(e.counter(why) == before + 1);
    CHECK(endpoint_drops(e) == drops + 1);
    CHECK(t.seen.empty());
    CHECK(got(e) == nullptr);
    CHECK(got(victim) == nullptr);
  };
  using C = EndpointCounter;
  expect(C::bad_ip_message, {}, {});
  expect(C::bad_ip_message, {}, Packet(19));
  expect(C::bad_ip_message, {.flags = 4}, udp4);
  expect(C::bad_ip_message, {.reserved = 1}, udp4);
  expect(C::bad_ip_message, {.segment_size = 1},
         make_packet({.from = t.own4, .to = t.peer4, .from_port = 53, .to_port = 4000}, pattern(513, 1)));
  expect(C::bad_ip_header, {}, changed(udp4, 0, 0x55));
  expect(C::bad_ip_header, {}, changed(udp4, 0, 0x46));            // options
  expect(C::bad_ip_header, {}, changed(udp4, 0, 0x44));
  expect(C::bad_ip_header, {}, changed(udp4, 3, 69));              // a length that is not the message's
  expect(C::bad_ip_header, {}, changed(udp4, 2, 0xFF));
  expect(C::bad_ip_header, {}, changed(udp4, 6, 0x20));            // more fragments
  expect(C::bad_ip_header, {}, changed(udp4, 7, 1));               // an offset
  expect(C::bad_ip_header, {}, changed(udp4, 8, 0));               // no hop
  expect(C::bad_ip_header, {}, changed(udp6, 5, 49));
  expect(C::bad_ip_header, {}, Packet(udp6.begin(), udp6.begin() + 39));
  expect(C::bad_ip_protocol, {}, changed(udp4, 9, 1));             // ICMP
  expect(C::bad_ip_protocol, {}, changed(udp6, 6, 58));
  expect(C::bad_ip_protocol, {}, changed(udp6, 6, 44));            // a fragment header
  expect(C::bad_ip_transport, {}, changed(udp4, 25, 49));          // UDP's length
  expect(C::bad_ip_transport, {}, changed(changed(udp4, 22, 0), 23, 0));  // to port 0
  expect(C::bad_ip_transport, {}, changed(tcp4, 32, 0x40));        // TCP's header
  expect(C::bad_ip_transport, {.segment_size = 10}, changed(make_packet({.from = t.own4, .to = t.peer4, .protocol = kTcp,
                                                                         .from_port = 53, .to_port = 4000}, {}), 32, 0xF0));
  expect(C::bad_ip_source, {}, changed(udp4, 15, 7));              // not an address of the host
  expect(C::bad_ip_source, {}, make_packet({.from = t.peer4, .to = t.peer4, .from_port = 53, .to_port = 4000}, {}));
  expect(C::bad_ip_port, {}, changed(udp4, 21, 54));               // another's port
  expect(C::bad_ip_port, {}, changed(udp4, 21, 55));
  expect(C::bad_ip_port, {}, changed(tcp4, 19, 3));                // claimed, but for another peer
  expect(C::bad_ip_port, {}, changed(tcp4, 23, 0xA1));             // or another port of that peer
  expect(C::bad_ip_port, {}, make_packet({.from = t.own4, .to = t.own4, .from_port = 55, .to_port = 54}, {}));  // on this NI, too
  expect(C::ip_no_route, {}, make_packet({.from = t.own4, .to = address("192.0.2.1"), .from_port = 53, .to_port = 4000}, {}));
  expect(C::ip_no_route, {}, make_packet({.from = t.own4, .to = address("0.0.0.0"), .from_port = 53, .to_port = 4000}, {}));
  // Descriptors are checked on IP channels, too.
  REQUIRE(e.put(TestIp::kChannel, 0, udp4, false));
  t.run();
  CHECK(e.counter(C::bad_send_descriptor) == 1);
  // Honest messages go on.
  REQUIRE(t.send(e, {}, tcp4));
  CHECK(t.seen.size() == 1);
}

}  // namespace unet::engine::ip_lies_test
