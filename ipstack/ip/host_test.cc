// host_test.cc - hosts on a link: address resolution, echo, fragmentation and reassembly, ICMP errors, unreachable neighbours.
#include "ipstack/ip/host.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "ipstack/ip/test_link.h"

namespace unet::ip::host_test {
namespace {

HostOptions options(bool ipv4, int number) {
  HostOptions o;
  const std::string last = std::to_string(number);
  o.addresses.push_back({*parse_ip((ipv4 ? "10.0.1." : "fd00:1::") + last), static_cast<uint8_t>(ipv4 ? 24 : 64)});
  return o;
}
IpAddress address(bool ipv4, int number) { return options(ipv4, number).addresses[0].address; }

std::vector<std::byte> pattern(size_t length) {
  std::vector<std::byte> bytes(length);
  for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  return bytes;
}

struct Two : TestLink {
  explicit Two(bool ipv4_) : ipv4(ipv4_), a(add(options(ipv4_, 1))), b(add(options(ipv4_, 2))) { run_for(20 * kSecond); }

  SendResult ping(uint32_t from, const IpAddress& to, size_t length, uint16_t sequence = 1, bool cut = true) {
    const std::vector<std::byte> data = pattern(length);
    const IpAddress source = (*this)[from].source_for(to).value_or(IpAddress{});
    std::array<std::byte, kIcmpBytes> header;
    emit_echo(header.data(), source, to, false, 77, sequence, data);
    const uint8_t protocol = to.is_ipv4() ? Protocol::kIcmp : Protocol::kIcmp6;
    return (*this)[from].send({.to = to, .protocol = protocol, .dont_fragment = !cut}, header, data, now());
  }
  SendResult udp(uint32_t from, const IpAddress& to, size_t length, bool cut = false) {
    const std::vector<std::byte> data = pattern(length);
    std::array<std::byte, kUdpBytes> header;
    emit_udp_header(header.data(), (*this)[from].source_for(to).value_or(IpAddress{}), to, 1000, 2000, data);
    return (*this)[from].send({.to = to, .protocol = Protocol::kUdp, .dont_fragment = !cut}, header, data, now());
  }

  const bool ipv4;
  const uint32_t a, b;
};

}  // namespace

TEST_CASE("hosts resolve each other and echo packets of any length") {
  const bool ipv4 = GENERATE(true, false);
  Two link(ipv4);
  for (const size_t length : {0u, 1u, 56u, 1452u, 1472u, 1473u, 4000u, 65000u}) {
    for (const uint32_t from : {link.a, link.b}) {
      const IpAddress to = address(ipv4, from == link.a ? 2 : 1);
      auto& came = link.nodes[from].came;
      came.clear();
      REQUIRE(link.ping(from, to, length, static_cast<uint16_t>(length)) == SendResult::sent);
      link.run_for(kSecond);
      REQUIRE(came.size() == 1);
      CHECK(came[0].kind == Arrival::Kind::echo_reply);
      CHECK(came[0].from == to);
      CHECK(came[0].icmp.id == 77);
      CHECK(came[0].icmp.sequence == static_cast<uint16_t>(length));
      CHECK(came[0].payload == pattern(length));
    }
  }
  CHECK(link[link.a].counter(HostCounter::echoes) == 8);
  CHECK(link[link.a].counter(HostCounter::no_buffer) == 0);
  CHECK(link[link.b].counter(HostCounter::bad_packet) == 0);
  CHECK(link[link.b].reassembly().used() == 0);
}

TEST_CASE("a tentative address is not used, nor one in conflict") {
  const bool ipv4 = GENERATE(true, false);
  TestLink link;
  const uint32_t a = link.add(options(ipv4, 1));
  CHECK(link[a].state_of(address(ipv4, 1)) == Host::AddressState::tentative);
  CHECK(link[a].send({.to = address(ipv4, 2), .protocol = 17}, {}, pattern(8), link.now()) == SendResult::no_source);
  link.run_for(20 * kSecond);
  CHECK(link[a].state_of(address(ipv4, 1)) == Host::AddressState::assigned);
  const uint32_t late = link.add(options(ipv4, 1));
  link.run_for(20 * kSecond);
  CHECK(link[late].has_conflict(address(ipv4, 1)));
  CHECK(link[late].counter(HostCounter::conflicts) == 1);
  CHECK(link[late].state_of(address(ipv4, 1)) == Host::AddressState::none);
  CHECK(link[a].state_of(address(ipv4, 1)) == Host::AddressState::assigned);
  CHECK(link[late].send({.from = address(ipv4, 1), .to = address(ipv4, 2), .protocol = 17}, {}, pattern(8), link.now()) ==
        SendResult::no_source);
  // Two hosts that start together with one address: not both may have it.
  TestLink race;
  const uint32_t first = race.add(options(ipv4, 1)), second = race.add(options(ipv4, 1));
  race.run_for(20 * kSecond);
  CHECK((race[first].has_conflict(address(ipv4, 1)) || race[second].has_conflict(address(ipv4, 1))));
}

TEST_CASE("what nobody wants is refused as a host does, and errors are bounded") {
  const bool ipv4 = GENERATE(true, false);
  Two link(ipv4);
  REQUIRE(link.udp(link.a, address(ipv4, 2), 20) == SendResult::sent);
  link.run_for(kSecond);
  auto& came = link.nodes[link.a].came;
  REQUIRE(came.size() == 1);
  CHECK(came[0].kind == Arrival::Kind::icmp_error);
  CHECK(came[0].icmp.kind == IcmpKind::unreachable);
  CHECK(came[0].icmp.why == Unreachable::port);
  CHECK(came[0].quoted_to == address(ipv4, 2));
  REQUIRE(link[link.a].send({.to = address(ipv4, 2), .protocol = 200}, {}, pattern(20), link.now()) == SendResult::sent);
  link.run_for(kSecond);
  REQUIRE(came.size() == 2);
  CHECK(came[1].icmp.kind == (ipv4 ? IcmpKind::unreachable : IcmpKind::parameter_problem));
  if (ipv4) CHECK(came[1].icmp.why == Unreachable::protocol);
  else CHECK(came[1].icmp.pointer == 6);
  // To a broadcast address: no error.
  const IpAddress all = *parse_address(ipv4 ? "10.0.1.255" : "ff02::1");
  REQUIRE(link.udp(link.a, all, 20) == SendResult::sent);
  link.run_for(kSecond);
  CHECK(link.nodes[link.b].came.size() == 3);
  CHECK(came.size() == 2);
  // Rate limit: so many errors per second.
  came.clear();
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(link.udp(link.a, address(ipv4, 2), 20) == SendResult::sent);
    link.run_for(kMillisecond / 10);
  }
  CHECK(came.size() >= 100);
  CHECK(came.size() <= 111);
  CHECK(link[link.b].counter(HostCounter::errors_limited) == 1000 - came.size());
}

namespace {

// A frame from `fields.from`, of another station, to `station`.
Frame frame_of(const MacAddress& station, const IpFields& fields, const std::vector<std::byte>& payload) {
  Frame frame(14 + ip_header_size(fields));
  std::memcpy(frame.data(), station.data(), 6);
  const MacAddress sender{2, 0, 0, 0, 1, 1};
  std::memcpy(frame.data() + 6, sender.data(), 6);
  frame[12] = std::byte{static_cast<uint8_t>(fields.from.is_ipv4() ? 0x08 : 0x86)};
  frame[13] = std::byte{static_cast<uint8_t>(fields.from.is_ipv4() ? 0x00 : 0xDD)};
  emit_ip_header(frame.data() + 14, fields, static_cast<uint32_t>(payload.size()));
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

}  // namespace

TEST_CASE("answers to hosts that are not there keep no more than half of the buffers") {
  Two link(true);
  for (int i = 0; i < 250; ++i) {
    std::vector<std::byte> echo(kIcmpBytes + 20);
    const IpAddress from = address(true, 3 + i % 200);
    emit_echo(echo.data(), from, address(true, 1), false, 1, 1, Bytes(echo).subspan(kIcmpBytes));
    for (int times = 0; times < 3; ++times) {
      link.inject(frame_of(TestLink::mac(0), {.from = from, .to = address(true, 1), .protocol = Protocol::kIcmp}, echo));
    }
  }
  CHECK(link[link.a].counter(HostCounter::no_buffer) > 0);
  // Other neighbours are still resolved if nothing waits for them, and known ones are answered.
  for (int i = 0; i < 2; ++i) {
    REQUIRE(link.ping(link.b, address(true, 1), 100) == SendResult::sent);
    link.run_for(kMillisecond);
  }
  CHECK(link.nodes[link.b].came.size() == 1);
  link.run_for(100 * kSecond);
  link.nodes[link.b].came.clear();
  REQUIRE(link.ping(link.b, address(true, 1), 60'000) == SendResult::sent);  // all buffers are free again
  link.run_for(kSecond);
  CHECK(link.nodes[link.b].came.size() == 1);
}

TEST_CASE("a unicast packet in a broadcast frame is dropped (IPv4), or causes no error (IPv6)") {
  const bool ipv4 = GENERATE(true, false);
  Two link(ipv4);
  const Frame to_all = frame_of(kBroadcast, {.from = address(ipv4, 2), .to = address(ipv4, 1), .protocol = 200}, pattern(20));
  link.inject(to_all);
  CHECK(link[link.a].counter(HostCounter::errors_sent) == 0);
  CHECK(link.nodes[link.a].came.size() == (ipv4 ? 0 : 1));
  Frame alone = to_all;
  std::memcpy(alone.data(), TestLink::mac(0).data(), 6);
  link.inject(alone);
  CHECK(link[link.a].counter(HostCounter::errors_sent) == 1);
}

TEST_CASE("ICMPv6: no error about an error behind unknown extension headers") {
  Two link(false);
  std::vector<std::byte> error(8 + 8 + 48);
  const uint8_t headers[] = {Protocol::kIcmp6, 0, 0x9e, 4, 0, 0, 0, 0, 1, 4};
  std::memcpy(error.data(), headers, sizeof headers);
  const IpFields fields{.from = address(false, 2), .to = address(false, 1), .protocol = Protocol::kIpv6Options};
  link.inject(frame_of(TestLink::mac(0), fields, error));
  CHECK(link[link.a].counter(HostCounter::bad_packet) == 1);
  CHECK(link[link.a].counter(HostCounter::errors_sent) == 0);
  error[8] = std::byte{128};  // an echo
  link.inject(frame_of(TestLink::mac(0), fields, error));
  CHECK(link[link.a].counter(HostCounter::errors_sent) == 1);
}

TEST_CASE("fragmentation: any split of header and data, up to the largest packet") {
  const bool ipv4 = GENERATE(true, false);
  Two link(ipv4);
  const auto send = [&](size_t header, size_t data) {
    const std::vector<std::byte> all = pattern(header + data);
    return link[link.a].send({.to = address(ipv4, 2), .protocol = 200, .dont_fragment = false}, Bytes(all).first(header),
                             Bytes(all).subspan(header), link.now());
  };
  CHECK(send(8, 8000) == SendResult::no_buffer);  // more than may wait; but resolution starts
  link.run_for(kSecond);
  const size_t largest = ipv4 ? 65515 : 65535;
  const std::pair<size_t, size_t> parts[] = {{8, 8000}, {3000, 0}, {3000, 3000}, {0, 3000}, {1480, 10}, {1448, 10}, {8, largest - 8}};
  for (const auto& [header, data] : parts) {
    CAPTURE(header, data);
    link.nodes[link.b].came.clear();
    REQUIRE(send(header, data) == SendResult::sent);
    link.run_for(kSecond);
    REQUIRE(link.nodes[link.b].came.size() == 1);
    CHECK(link.nodes[link.b].came[0].payload == pattern(header + data));
  }
  CHECK(send(8, largest - 7) == SendResult::too_big);
  CHECK(link[link.a].send({.to = address(ipv4, 1), .protocol = 200}, {}, pattern(8), link.now()) == SendResult::no_route);
}

TEST_CASE("errors are not about errors, and not to groups") {
  Two link(true);
  std::array<std::byte, 600> message;
  const uint32_t length = emit_icmp_error(message.data(), address(true, 1), address(true, 2), {.why = Unreachable::port}, {});
  const Bytes error = Bytes(message).first(length);
  REQUIRE(link[link.a].send({.to = address(true, 2), .protocol = Protocol::kIcmp}, {}, error, link.now()) == SendResult::sent);
  link.run_for(kSecond);
  CHECK(link.nodes[link.a].came.empty());
  CHECK(link.nodes[link.b].came.empty());  // it quotes nothing
  CHECK(link[link.b].counter(HostCounter::bad_icmp) == 1);
  // An error that quotes a packet of another host.
  std::array<std::byte, 28> quoted{};
  emit_ip_header(quoted.data(), {.from = address(true, 9), .to = address(true, 1), .protocol = 17}, 8);
  const uint32_t forged = emit_icmp_error(message.data(), address(true, 1), address(true, 2), {.why = Unreachable::port}, quoted);
  REQUIRE(link[link.a].send({.to = address(true, 2), .protocol = Protocol::kIcmp}, {}, Bytes(message).first(forged), link.now()) ==
          SendResult::sent);
  link.run_for(kSecond);
  CHECK(link.nodes[link.b].came.empty());
  CHECK(link[link.b].counter(HostCounter::bad_icmp) == 2);
}

TEST_CASE("routing: longest prefix match over static routes and on-link prefixes, then the gateway") {
  const bool ipv4 = GENERATE(true, false);
  const auto network = [&](const char* four, const char* six) { return *parse_ip(ipv4 ? four : six); };
  TestLink link;
  HostOptions with = options(ipv4, 1);
  (ipv4 ? with.gateway4 : with.gateway6) = address(ipv4, 2);
  const auto bits = [&](int four, int six) { return static_cast<uint8_t>(ipv4 ? four : six); };
  with.routes.push_back({network("192.0.0.0", "2001::"), bits(8, 16), address(ipv4, 3)});
  with.routes.push_back({network("192.0.2.0", "2001:db8::"), bits(24, 32), address(ipv4, 4)});
  with.routes.push_back({address(ipv4, 99), bits(32, 128), address(ipv4, 4)});  // on-link, but with a longer prefix
  const auto shorter = static_cast<uint8_t>(with.addresses[0].prefix - 8);  // than the link's prefix
  with.routes.push_back({network("10.0.0.0", "fd00:1::"), shorter, address(ipv4, 3)});
  const uint32_t a = link.add(with);
  for (int i = 2; i <= 5; ++i) link.add(options(ipv4, i));
  link.run_for(20 * kSecond);
  const auto goes_to = [&](const IpAddress& to) {
    link.frames.clear();
    REQUIRE(link[a].send({.to = to, .protocol = 17}, {}, pattern(20), link.now()) == SendResult::sent);
    link.run_for(kSecond);
    for (const Frame& each : link.frames) {
      IpView view;
      Problem problem;
      if (parse_ip_packet(Bytes(each).subspan(14), view, problem) != IpError::none || view.to != to) continue;
      for (uint32_t host = 0; host < 5; ++host) {
        if (std::memcmp(each.data(), TestLink::mac(host).data(), 6) == 0) return static_cast<int>(host) + 1;
      }
    }
    return 0;
  };
  CHECK(goes_to(network("198.51.100.1", "2a00::1")) == 2);
  CHECK(goes_to(network("192.168.0.1", "2001:1::1")) == 3);
  CHECK(goes_to(network("192.0.2.1", "2001:db8::1")) == 4);
  CHECK(goes_to(address(ipv4, 5)) == 5);
  CHECK(goes_to(address(ipv4, 99)) == 4);
}

TEST_CASE("an absent neighbour is reported unreachable, and the gateway is used beyond the link") {
  const bool ipv4 = GENERATE(true, false);
  TestLink link;
  HostOptions with = options(ipv4, 1);
  (ipv4 ? with.gateway4 : with.gateway6) = address(ipv4, 2);
  const uint32_t a = link.add(with), b = link.add(options(ipv4, 2));
  link.run_for(20 * kSecond);
  for (int i = 0; i < 5; ++i) {
    REQUIRE(link[a].send({.to = address(ipv4, 99), .protocol = 17}, {}, pattern(20), link.now()) == SendResult::sent);
  }
  link.run_for(10 * kSecond);
  IpAddress neighbour;
  REQUIRE(link[a].poll_unreachable(neighbour));
  CHECK(neighbour == address(ipv4, 99));
  CHECK_FALSE(link[a].poll_unreachable(neighbour));  // reported once
  CHECK(link[a].counter(HostCounter::unreachable) == 3);  // two were dropped from the full queue
  // Beyond the link: to the gateway's station.
  link.frames.clear();
  const IpAddress far = *parse_ip(ipv4 ? "192.0.2.1" : "2001:db8::1");
  REQUIRE(link[a].send({.to = far, .protocol = 17}, {}, pattern(20), link.now()) == SendResult::sent);
  link.run_for(kSecond);
  const auto to_far = std::find_if(link.frames.begin(), link.frames.end(), [&](const Frame& f) {
    IpView view;
    Problem problem;
    return parse_ip_packet(Bytes(f).subspan(14), view, problem) == IpError::none && view.to == far;
  });
  REQUIRE(to_far != link.frames.end());
  CHECK(std::memcmp(to_far->data(), TestLink::mac(b).data(), 6) == 0);
  CHECK(link[b].counter(HostCounter::other_host) == 1);  // it does not forward
  CHECK(link[b].send({.to = far, .protocol = 17}, {}, pattern(20), link.now()) == SendResult::no_route);
  CHECK(link[b].send({.to = *parse_ip(ipv4 ? "127.0.0.1" : "fe80::1"), .protocol = 17}, {}, pattern(20), link.now()) ==
        (ipv4 ? SendResult::no_route : SendResult::sent));
}

TEST_CASE("path MTU: packets are refused or fragmented, for ten minutes") {
  const bool ipv4 = GENERATE(true, false);
  Two link(ipv4);
  const IpAddress to = address(ipv4, 2);
  CHECK(link[link.a].path_mtu(to, link.now()) == 1500);
  CHECK(link.udp(link.a, to, 1501) == SendResult::too_big);
  // The ICMP error of a router, about a packet of a.
  std::vector<std::byte> packet(1500);
  const uint32_t header = emit_ip_header(packet.data(), {.from = address(ipv4, 1), .to = to, .protocol = 17}, ipv4 ? 1480 : 1460);
  REQUIRE(header == (ipv4 ? 20 : 40));
  std::array<std::byte, kIcmpBytes + kIcmpQuote6Max> message;
  const uint32_t length = emit_icmp_error(message.data(), to, address(ipv4, 1), {.kind = IcmpKind::packet_too_big, .value = 1300}, packet);
  const uint8_t icmp = ipv4 ? Protocol::kIcmp : Protocol::kIcmp6;
  REQUIRE(link[link.b].send({.to = address(ipv4, 1), .protocol = icmp}, {}, Bytes(message).first(length), link.now()) == SendResult::sent);
  link.run_for(kSecond);
  CHECK(link.nodes[link.a].too_big == 1);
  CHECK(link[link.a].path_mtu(to, link.now()) == 1300);
  CHECK(link.udp(link.a, to, 1400) == SendResult::too_big);
  REQUIRE(link.udp(link.a, to, 1400, true) == SendResult::sent);
  link.frames.clear();
  link.run_for(kSecond);
  for (const Frame& each : link.frames) CHECK(each.size() <= 14 + 1300);
  REQUIRE(link.nodes[link.b].came.size() == 1);
  CHECK(link.nodes[link.b].came[0].payload.size() == 1408);
  link.run_for(700 * kSecond);
  CHECK(link[link.a].path_mtu(to, link.now()) == 1500);
}

TEST_CASE("ICMP: time exceeded for an incomplete packet") {
  const bool ipv4 = GENERATE(true, false);
  Two link(ipv4);
  link.loses = [](const Frame& frame, size_t to) {
    IpView view;
    Problem problem;
    return to == 1 && parse_ip_packet(Bytes(frame).subspan(14), view, problem) == IpError::none && view.offset != 0 && !view.more_fragments;
  };
  REQUIRE(link.ping(link.a, address(ipv4, 2), 4000) == SendResult::sent);
  link.run_for(59 * kSecond);
  CHECK(link.nodes[link.a].came.empty());
  link.run_for(2 * kSecond);
  REQUIRE(link.nodes[link.a].came.size() == 1);
  CHECK(link.nodes[link.a].came[0].icmp.kind == IcmpKind::time_exceeded);
  CHECK(link.nodes[link.a].came[0].icmp.code == 1);
  CHECK(link.nodes[link.a].came[0].quoted_to == address(ipv4, 2));
}

TEST_CASE("ICMPv6: parameter problem for an unknown option") {
  Two link(false);
  // A destination option that must be understood (11).
  std::vector<std::byte> options_and_data = pattern(24);
  const uint8_t unknown[] = {17, 0, 0xde, 4, 0, 0, 0, 0};
  std::memcpy(options_and_data.data(), unknown, sizeof unknown);
  REQUIRE(link[link.a].send({.to = address(false, 2), .protocol = Protocol::kIpv6Options}, {}, options_and_data, link.now()) ==
          SendResult::sent);
  link.run_for(kSecond);
  REQUIRE(link.nodes[link.a].came.size() == 1);
  CHECK(link.nodes[link.a].came[0].icmp.kind == IcmpKind::parameter_problem);
  CHECK(link.nodes[link.a].came[0].icmp.code == 2);
  CHECK(link.nodes[link.a].came[0].icmp.pointer == 42);
}

TEST_CASE("an address that moves to another station is resolved again") {
  const bool ipv4 = GENERATE(true, false);
  Two link(ipv4);
  REQUIRE(link.ping(link.a, address(ipv4, 2), 10) == SendResult::sent);
  link.run_for(kSecond);
  REQUIRE(link.nodes[link.a].came.size() == 1);
  // b is gone; another host takes its address.
  link.nodes.erase(link.nodes.begin() + 1);
  HostOptions again = options(ipv4, 2);
  static_cast<void>(link.add(HostOptions{.ipv6 = false}));  // it has b's station
  const uint32_t c = link.add(again);
  link.run_for(20 * kSecond);
  REQUIRE(link[c].state_of(address(ipv4, 2)) == Host::AddressState::assigned);
  link.nodes[link.a].came.clear();
  for (int i = 0; i < 80 && link.nodes[link.a].came.empty(); ++i) {
    link.ping(link.a, address(ipv4, 2), 10);
    link.run_for(kSecond);
  }
  CHECK(link.nodes[link.a].came.size() == 1);
  CHECK(link[link.a].neighbours().state(address(ipv4, 2)).has_value());
}

TEST_CASE("buffers: exhaustion and recovery") {
  const bool ipv4 = GENERATE(true, false);
  TestLink link;
  HostOptions few = options(ipv4, 1);
  few.buffers = 8;
  const uint32_t a = link.add(few), b = link.add(options(ipv4, 2));
  link.run_for(20 * kSecond);
  for (int round = 0; round < 5; ++round) {
    uint32_t sent = 0;
    while (link[a].send({.to = address(ipv4, 2), .protocol = 17}, {}, pattern(20), link.now()) == SendResult::sent) {
      REQUIRE(++sent <= 1000);
      if (round == 0 && sent == 100) break;  // three packets at most wait for resolution
    }
    if (round != 0) CHECK(sent == 8);
    CHECK(link[a].send({.to = address(ipv4, 2), .protocol = 17, .dont_fragment = false}, {}, pattern(20'000), link.now()) ==
          SendResult::no_buffer);
    link.run_for(kSecond);
  }
  CHECK(link.nodes[b].came.size() == 3 + 4 * 8);
}

TEST_CASE("any frames at all: hosts go on") {
  std::mt19937 random(1);
  for (const bool ipv4 : {true, false}) {
    Two link(ipv4);
    // Frames of real traffic, modified, truncated and repeated.
    for (const size_t length : {0u, 100u, 3000u}) {
      link.ping(link.a, address(ipv4, 2), length);
      link.udp(link.b, address(ipv4, 1), length, true);
      link.run_for(kSecond);
    }
    // Except ARP: a forged ARP frame could take an IPv4 address away, and end the test's traffic.
    std::vector<Frame> seen = link.frames;
    seen.erase(std::remove_if(seen.begin(), seen.end(), [](const Frame& f) { return f[12] == std::byte{8} && f[13] == std::byte{6}; }),
               seen.end());
    for (int i = 0; i < 30'000; ++i) {
      Frame frame = seen[random() % seen.size()];
      for (uint32_t change = static_cast<uint32_t>(random() % 4); change != 0; --change) {
        frame[random() % std::min<size_t>(frame.size(), 100)] = static_cast<std::byte>(random());
      }
      if (random() % 4 == 0) frame.resize(random() % (frame.size() + 1));
      link.inject(frame);
      if (i % 100 == 0) link.run_for(kMillisecond);
      link.frames.clear();
    }
    link.run_for(100 * kSecond);
    for (auto& node : link.nodes) node.came.clear();
    REQUIRE(link[link.a].state_of(address(ipv4, 1)) == Host::AddressState::assigned);
    REQUIRE(link[link.b].state_of(address(ipv4, 2)) == Host::AddressState::assigned);
    for (int i = 0; i < 80 && link.nodes[link.a].came.empty(); ++i) {
      link.ping(link.a, address(ipv4, 2), 100);
      link.run_for(kSecond);
    }
    CHECK_FALSE(link.nodes[link.a].came.empty());
  }
}

}  // namespace unet::ip::host_test
