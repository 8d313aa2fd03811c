// ip_test.cc - headers of both versions against bytes by hand, emitted packets parse, and every way in which a packet can be invalid.
#include "unet/wire/ip.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <vector>

#include "unet/wire/checksum.h"

namespace unet::ip::ip_test {
namespace {

using Packet = std::vector<std::byte>;

Packet bytes(std::initializer_list<int> values) {
  Packet packet;
  for (const int value : values) packet.push_back(static_cast<std::byte>(value));
  return packet;
}

void append(Packet& packet, const Packet& more) { packet.insert(packet.end(), more.begin(), more.end()); }

IpFields fields(bool ipv4) {
  return {.from = *parse_ip(ipv4 ? "10.0.1.2" : "fd00:1::2"), .to = *parse_ip(ipv4 ? "10.0.2.2" : "fd00:2::2"), .protocol = Protocol::kUdp,
          .hop_limit = 64};
}

Packet emit(const IpFields& of, uint32_t length) {
  Packet packet(ip_header_size(of) + length);
  REQUIRE(emit_ip_header(packet.data(), of, length) == packet.size() - length);
  for (uint32_t i = 0; i < length; ++i) packet[packet.size() - length + i] = static_cast<std::byte>(i * 7 + 3);
  return packet;
}

// An IPv6 packet with these extension headers.
Packet extended(uint8_t first, const Packet& headers, uint32_t length = 16) {
  IpFields of = fields(false);
  of.protocol = first;
  Packet packet = emit(of, 0);
  append(packet, headers);
  packet.resize(packet.size() + length);
  packet[5] = static_cast<std::byte>(packet.size() - kIpv6Bytes);
  return packet;
}

struct Parsed {
  IpError error;
  IpView view;
  Problem problem;
};
Parsed parse(const Packet& packet) {
  Parsed p{};
  p.error = parse_ip_packet(packet, p.view, p.problem);
  return p;
}

void sum_ipv4(Packet& packet) {
  packet[10] = packet[11] = std::byte{0};
  const uint16_t sum = checksum_fold(checksum_add(0, packet.data(), (std::to_integer<size_t>(packet[0]) & 15) * 4));
  std::memcpy(&packet[10], &sum, 2);
}

// An IPv4 packet with these options.
Packet with_options(const Packet& options) {
  Packet packet = emit(fields(true), 8);
  packet.insert(packet.begin() + 20, options.begin(), options.end());
  packet[0] = static_cast<std::byte>(0x40 | (20 + options.size()) / 4);
  packet[3] = static_cast<std::byte>(packet.size());
  sum_ipv4(packet);
  return packet;
}

}  // namespace

TEST_CASE("IP: headers, byte by byte") {
  IpFields of = fields(true);
  of.traffic_class = 0xB9;
  of.id = 0x1234;
  CHECK(emit(of, 0) == bytes({0x45, 0xB9, 0, 20, 0x12, 0x34, 0x40, 0, 64, 17, 0x10, 0xe9, 10, 0, 1, 2, 10, 0, 2, 2}));
  of.dont_fragment = false;
  of.more_fragments = true;
  of.offset = 1480;
  CHECK(emit(of, 0) == bytes({0x45, 0xB9, 0, 20, 0x12, 0x34, 0x20, 185, 64, 17, 0x30, 0x30, 10, 0, 1, 2, 10, 0, 2, 2}));

  IpFields six = fields(false);
  six.traffic_class = 0xB9;
  six.flow_label = 0x54321;
  Packet expected = bytes({0x6B, 0x95, 0x43, 0x21, 0, 0, 17, 64});
  append(expected, bytes({0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0xfd, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}));
  CHECK(emit(six, 0) == expected);
  six.offset = 1448;
  six.more_fragments = true;
  six.id = 0xCAFE0001;
  const Packet fragment = emit(six, 0);
  CHECK(fragment[6] == std::byte{44});
  CHECK(Packet(fragment.begin() + 40, fragment.end()) == bytes({17, 0, 0x05, 0xA9, 0xCA, 0xFE, 0, 1}));
}

TEST_CASE("what is emitted is parsed, whatever it says") {
  std::mt19937 generator(1);
  const auto random = [&] { return static_cast<uint32_t>(generator()); };
  for (int round = 0; round < 5000; ++round) {
    const bool ipv4 = random() % 2 == 0;
    IpFields of = fields(ipv4);
    of.protocol = random() % 2 == 0 ? Protocol::kTcp : Protocol::kIcmp;
    of.hop_limit = static_cast<uint8_t>(random());
    of.traffic_class = static_cast<uint8_t>(random());
    of.flow_label = random() & 0xFFFFF;
    of.router_alert = random() % 4 == 0;
    of.more_fragments = random() % 4 == 0;
    of.offset = random() % 3 == 0 ? random() % 1000 * 8 : 0;
    of.dont_fragment = random() % 2 == 0;
    const bool fragment = of.more_fragments || of.offset != 0;
    of.id = ipv4 ? random() & 0xFFFF : fragment ? random() : 0;
    const uint32_t length = of.more_fragments ? random() % 100 * 8 : random() % 1000;
    Packet packet = emit(of, length);
    const size_t size = packet.size();
    packet.resize(size + random() % 40);  // Ethernet's padding
    const Parsed p = parse(packet);
    REQUIRE(p.error == IpError::none);
    REQUIRE(p.view.ipv4 == ipv4);
    REQUIRE(p.view.from == of.from);
    REQUIRE(p.view.to == of.to);
    REQUIRE(p.view.protocol == of.protocol);
    REQUIRE(p.view.hop_limit == of.hop_limit);
    REQUIRE(p.view.traffic_class == of.traffic_class);
    REQUIRE(p.view.router_alert == of.router_alert);
    REQUIRE(p.view.more_fragments == of.more_fragments);
    REQUIRE(p.view.offset == of.offset);
    REQUIRE(p.view.id == of.id);
    REQUIRE(p.view.dont_fragment == (ipv4 ? of.dont_fragment : true));
    if (!ipv4) REQUIRE(p.view.flow_label == of.flow_label);
    REQUIRE(p.view.packet.size() == size);
    REQUIRE(p.view.payload.size() == length);
    REQUIRE(p.view.payload.data() == packet.data() + size - length);
  }
}

TEST_CASE("IP: parse_alike() agrees with parse_ip_packet()") {
  for (const bool ipv4 : {true, false}) {
    const Packet first = emit(fields(ipv4), 20);
    const Parsed before = parse(first);
    IpView view;
    IpFields of = fields(ipv4);
    of.id = 77;
    CHECK(parse_alike(emit(of, 1000), before.view, view));
    CHECK(view.payload.size() == 1000);
    CHECK(view.id == (ipv4 ? 77 : 0));
    of.router_alert = true;
    CHECK_FALSE(parse_alike(emit(of, 20), before.view, view));
    const Packet alert = emit(of, 20);
    CHECK_FALSE(parse_alike(alert, parse(alert).view, view));
    of.router_alert = false;
    of.more_fragments = true;
    const Packet fragment = emit(of, 16);
    CHECK_FALSE(parse_alike(fragment, parse(fragment).view, view));
    uint32_t alike = 0;
    const size_t head = ipv4 ? 20 : 40;
    for (size_t bit = 0; bit < head * 8; ++bit) {
      Packet packet = first;
      packet[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      packet.resize(packet.size() + 26);  // padding, or data that a changed length includes
      const bool is_sum = ipv4 && (bit / 8 == 10 || bit / 8 == 11);
      if (ipv4 && !is_sum && (packet[0] & std::byte{15}) == std::byte{5}) sum_ipv4(packet);
      if (!parse_alike(packet, before.view, view)) continue;
      ++alike;
      const Parsed p = parse(packet);
      REQUIRE(p.error == IpError::none);
      CHECK(p.view.from == view.from);
      CHECK(p.view.to == view.to);
      CHECK(p.view.protocol == view.protocol);
      CHECK(p.view.hop_limit == view.hop_limit);
      CHECK(p.view.traffic_class == view.traffic_class);
      CHECK(p.view.flow_label == view.flow_label);
      CHECK(p.view.dont_fragment == view.dont_fragment);
      CHECK(p.view.is_fragment() == view.is_fragment());
      CHECK(p.view.id == view.id);
      CHECK(p.view.packet.data() == view.packet.data());
      CHECK(p.view.packet.size() == view.packet.size());
      CHECK(p.view.payload.data() == view.payload.data());
    }
    CHECK(alike == (ipv4 ? 16 + 5 : 5));  // the id, and shorter lengths
    for (size_t length = 0; length < first.size(); ++length) {
      CHECK_FALSE(parse_alike(Packet(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(length)), before.view, view));
    }
  }
}

TEST_CASE("a packet cut anywhere is refused, and no bit of an IPv4 header can change unnoticed") {
  for (const bool ipv4 : {true, false}) {
    const Packet packet = emit(fields(ipv4), 20);
    for (size_t length = 0; length < packet.size(); ++length) {
      CHECK(parse(Packet(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(length))).error == IpError::truncated);
    }
  }
  const Packet packet = emit(fields(true), 20);
  for (size_t bit = 0; bit < 20 * 8; ++bit) {
    Packet changed = packet;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const Parsed p = parse(changed);
    CHECK((p.error != IpError::none || !p.view.ipv4));  // the version selects the rules
  }
}

TEST_CASE("every way in which an IPv4 packet can be wrong") {
  Packet packet = emit(fields(true), 20);
  packet[0] = std::byte{0x44};
  CHECK(parse(packet).error == IpError::bad_header);
  packet[0] = std::byte{0x55};
  CHECK(parse(packet).error == IpError::bad_version);
  packet = emit(fields(true), 20);
  packet[3] = std::byte{19};
  sum_ipv4(packet);
  CHECK(parse(packet).error == IpError::bad_length);
  packet = emit(fields(true), 20);
  packet[8] = std::byte{63};
  CHECK(parse(packet).error == IpError::bad_checksum);
  for (const char* from : {"224.0.0.1", "255.255.255.255"}) {
    IpFields of = fields(true);
    of.from = *parse_address(from);
    CHECK(parse(emit(of, 8)).error == IpError::bad_address);
  }
  IpFields of = fields(true);
  of.more_fragments = true;
  CHECK(parse(emit(of, 16)).error == IpError::none);
  CHECK(parse(emit(of, 17)).error == IpError::bad_fragment);
  of.more_fragments = false;
  of.offset = 65512;
  CHECK(parse(emit(of, 3)).error == IpError::none);
  CHECK(parse(emit(of, 4)).error == IpError::bad_fragment);
}

TEST_CASE("options of IPv4 are skipped, but for routes") {
  struct Options {
    Packet bytes;
    IpError error;
    bool alert;
  };
  const Options all[] = {
      {bytes({1, 1, 1, 0}), IpError::none, false},
      {bytes({0, 9, 9, 9}), IpError::none, false},                               // anything may follow the end option
      {bytes({148, 4, 0, 0}), IpError::none, true},
      {bytes({1, 7, 7, 4, 0, 0, 0, 0}), IpError::none, false},                   // record route
      {bytes({7, 7, 4, 0, 0, 0, 0, 131}), IpError::bad_header, false},           // no length
      {bytes({7, 1, 4, 0}), IpError::bad_header, false},
      {bytes({7, 0, 4, 0}), IpError::bad_header, false},
      {bytes({7, 5, 4, 0}), IpError::bad_header, false},
      {bytes({131, 7, 4, 10, 0, 0, 1, 0}), IpError::source_route, false},
      {bytes({1, 137, 7, 4, 10, 0, 0, 1}), IpError::source_route, false},
      {Packet(40, std::byte{1}), IpError::none, false},
  };
  for (const Options& each : all) {
    const Packet packet = with_options(each.bytes);
    const Parsed p = parse(packet);
    CHECK(p.error == each.error);
    CHECK(p.view.router_alert == each.alert);
    if (p.error == IpError::none) CHECK(p.view.payload.size() == 8);
  }
}

TEST_CASE("IPv6: extension headers are walked to the transport protocol") {
  const Packet options = bytes({60, 0, 1, 4, 0, 0, 0, 0}), route = bytes({60, 0, 0, 0, 0, 0, 0, 0});
  Packet headers = options;  // hop by hop, destination options, a route that is over, destination options
  append(headers, bytes({43, 0, 0, 0, 0, 0, 0, 0}));
  append(headers, route);
  append(headers, bytes({17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  const Packet packet = extended(Protocol::kHopByHop, headers, 24);
  const Parsed p = parse(packet);
  REQUIRE(p.error == IpError::none);
  CHECK(p.view.protocol == Protocol::kUdp);
  CHECK(p.view.payload.size() == 24);
  CHECK(p.view.protocol_at == kIpv6Bytes + 24);
  // An atomic fragment (RFC 6946), followed by options.
  Packet atomic = bytes({60, 0, 0, 0, 1, 2, 3, 4});
  append(atomic, bytes({17, 0, 1, 4, 0, 0, 0, 0}));
  const Packet whole = extended(Protocol::kIpv6Fragment, atomic);
  const Parsed a = parse(whole);
  REQUIRE(a.error == IpError::none);
  CHECK_FALSE(a.view.is_fragment());
  CHECK(a.view.fragment_header);
  CHECK(a.view.protocol == Protocol::kUdp);
  CHECK(a.view.payload.size() == 16);
  // Headers after a fragment header are not walked.
  const Packet first = extended(Protocol::kIpv6Fragment, bytes({60, 0, 0, 1, 1, 2, 3, 4}));
  const Parsed f = parse(first);
  REQUIRE(f.error == IpError::none);
  CHECK(f.view.is_fragment());
  CHECK(f.view.protocol == Protocol::kIpv6Options);
  CHECK(f.view.id == 0x01020304);
}

TEST_CASE("every way in which an IPv6 packet can be wrong, and what is said of it") {
  struct Wrong {
    uint8_t first;
    Packet headers;
    IpError error;
    bool report;
    uint8_t code;
    uint32_t pointer;
    bool even_of_groups;
  };
  Packet nine;
  for (int i = 0; i < 9; ++i) append(nine, bytes({i == 8 ? 17 : 60, 0, 1, 4, 0, 0, 0, 0}));
  const Wrong all[] = {
      // Hop-by-hop options after another header.
      {60, bytes({0, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0}), IpError::unknown_header, true, 1, 40, false},
      {0, bytes({17, 0, 0x3e, 4, 0, 0, 0, 0}), IpError::none, false, 0, 0, false},  // unknown, to be skipped (00)
      {0, bytes({17, 0, 0x7e, 4, 0, 0, 0, 0}), IpError::unknown_header, false, 0, 0, false},
      {0, bytes({17, 0, 0, 0x9e, 3, 0, 0, 0}), IpError::unknown_header, true, 2, 43, true},
      {60, bytes({17, 0, 0xde, 4, 0, 0, 0, 0}), IpError::unknown_header, true, 2, 42, false},
      {0, bytes({17, 0, 0xc2, 4, 0, 1, 0, 0}), IpError::unknown_header, true, 2, 42, false},  // a jumbogram
      {60, bytes({17, 0, 1, 5, 0, 0, 0, 0}), IpError::bad_header, false, 0, 0, false},
      {60, bytes({17, 0, 1, 3, 0, 0, 0, 1}), IpError::bad_header, false, 0, 0, false},
      {60, bytes({17, 9, 1, 4, 0, 0, 0, 0}), IpError::truncated, false, 0, 0, false},
      {43, bytes({17, 0, 0, 1, 0, 0, 0, 0}), IpError::source_route, true, 0, 42, false},
      {43, bytes({17, 0, 4, 2, 0, 0, 0, 0}), IpError::source_route, true, 0, 42, false},
      {60, nine, IpError::too_many_headers, false, 0, 0, false},
  };
  for (const Wrong& each : all) {
    const Packet packet = extended(each.first, each.headers);
    const Parsed p = parse(packet);
    CAPTURE(each.first, name_of(p.error), &each - all);
    CHECK(p.error == each.error);
    CHECK(p.problem.report == each.report);
    CHECK(p.problem.even_of_groups == each.even_of_groups);
    if (each.report) {
      CHECK(p.problem.code == each.code);
      CHECK(p.problem.pointer == each.pointer);
    }
  }
  CHECK(parse(extended(60, bytes({17, 0, 1, 4}), 0)).error == IpError::truncated);
  const Parsed odd = parse(extended(44, bytes({17, 0, 0, 1, 0, 0, 0, 1}), 17));
  CHECK(odd.error == IpError::bad_fragment);
  CHECK((odd.problem.report && odd.problem.code == 0 && odd.problem.pointer == 4));
  const Parsed beyond = parse(extended(44, bytes({17, 0, 0xFF, 0xF8, 0, 0, 0, 1}), 8));
  CHECK(beyond.error == IpError::bad_fragment);
  CHECK((beyond.problem.report && beyond.problem.code == 0 && beyond.problem.pointer == 42));
  for (const char* from : {"ff02::1", "::ffff:10.0.0.1"}) {
    Packet packet = emit(fields(false), 8);
    std::memcpy(&packet[8], parse_address(from)->bytes.data(), 16);
    CHECK(parse(packet).error == IpError::bad_address);
  }
}

TEST_CASE("headers behind the fragment's are walked when the packet is whole") {
  Packet whole = emit(fields(false), 0);
  append(whole, bytes({17, 0, 1, 4, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}));
  IpView view;
  Problem problem;
  view.ipv4 = false;
  const Bytes packet = whole;
  REQUIRE(parse_reassembled(Protocol::kIpv6Options, packet, packet.subspan(kIpv6Bytes), view, problem) == IpError::none);
  CHECK(view.protocol == Protocol::kUdp);
  CHECK(view.payload.size() == 8);
  CHECK_FALSE(view.is_fragment());
  // A fragment header inside a reassembled packet.
  Packet nested = emit(fields(false), 0);
  append(nested, bytes({17, 0, 0, 9, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8}));
  const Bytes inner = nested;
  CHECK(parse_reassembled(Protocol::kIpv6Fragment, inner, inner.subspan(kIpv6Bytes), view, problem) == IpError::bad_fragment);
}

TEST_CASE("the pseudo header is that of a UDP datagram by hand") {
  // 10.0.1.2:849 -> 10.0.2.2:849, 4 bytes of payload.
  const Packet udp = bytes({0x03, 0x51, 0x03, 0x51, 0, 12, 0, 0, 3, 10, 17, 24});
  const uint64_t sum = pseudo_header_sum(*parse_ip("10.0.1.2"), *parse_ip("10.0.2.2"), Protocol::kUdp, 12);
  uint32_t by_hand = 0x0A00 + 0x0102 + 0x0A00 + 0x0202 + 17 + 12 + 0x0351 + 0x0351 + 12 + 0x030A + 0x1118;
  by_hand = (by_hand & 0xFFFF) + (by_hand >> 16);
  const be16 expected(static_cast<uint16_t>(~by_hand));
  const uint16_t field = checksum_fold(checksum_add(sum, udp));
  CHECK(std::memcmp(&field, &expected, 2) == 0);
  // The length counts with 32 bits (RFC 8200, 8.1).
  const IpAddress six = *parse_ip("fd00::1");
  CHECK(checksum_fold(pseudo_header_sum(six, six, 6, 0x10000)) == checksum_fold(pseudo_header_sum(six, six, 6, 1)));
}

TEST_CASE("what ICMP quotes may be cut behind the header") {
  for (const bool ipv4 : {true, false}) {
    const Packet packet = emit(fields(ipv4), 20);
    const size_t header = ip_header_size(fields(ipv4));
    for (size_t length = 0; length <= packet.size(); ++length) {
      QuotedPacket quoted;
      const Bytes cut = Bytes(packet).first(length);
      REQUIRE(parse_quoted(cut, ipv4, quoted) == (length >= header));
      REQUIRE_FALSE(parse_quoted(cut, !ipv4, quoted));
      if (length < header) continue;
      REQUIRE(parse_quoted(cut, ipv4, quoted));
      CHECK(quoted.from == fields(ipv4).from);
      CHECK(quoted.to == fields(ipv4).to);
      CHECK(quoted.protocol == Protocol::kUdp);
      CHECK(quoted.payload.size() == length - header);
    }
    if (!ipv4) {
      // Extension headers, one of which the error is about.
      const Packet with = extended(60, bytes({43, 0, 0xde, 4, 0, 0, 0, 0, 17, 0, 0, 1, 0, 0, 0, 0}));
      for (size_t length = kIpv6Bytes; length <= with.size(); ++length) {
        QuotedPacket quoted;
        REQUIRE(parse_quoted(Bytes(with).first(length), false, quoted));
        CHECK(quoted.payload.size() == (length < 56 ? 0 : length - 56));
        if (length >= 56) CHECK(quoted.protocol == Protocol::kUdp);
      }
    }
    // A later fragment has no transport header.
    IpFields later = fields(ipv4);
    later.offset = 8;
    QuotedPacket quoted;
    const Packet fragment = emit(later, 20);
    REQUIRE(parse_quoted(fragment, ipv4, quoted));
    CHECK(quoted.payload.empty());
  }
}

TEST_CASE("fuzz: IP: any bytes: accepted packets lie inside the input") {
  std::mt19937 random(3);
  uint32_t accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    Packet packet(random() % 120);
    for (std::byte& each : packet) each = static_cast<std::byte>(random() % 3 == 0 ? 0 : random());
    if (!packet.empty()) packet[0] = static_cast<std::byte>(random() % 2 == 0 ? 0x60 : 0x45 + random() % 3);
    if (packet.size() > 42 && packet[0] == std::byte{0x60}) {
      packet[4] = std::byte{0};
      packet[5] = static_cast<std::byte>(packet.size() - 40 - random() % 2);
      constexpr uint8_t kNext[] = {0, 43, 44, 60, 17};
      packet[6] = static_cast<std::byte>(kNext[random() % 5]);
      packet[40] = static_cast<std::byte>(kNext[random() % 5]);
      packet[41] = static_cast<std::byte>(random() % 3);
    } else if (packet.size() > 28) {
      packet[2] = std::byte{0};
      packet[3] = static_cast<std::byte>(packet.size() - random() % 2);
      sum_ipv4(packet);
    }
    IpView view;
    Problem problem;
    if (parse_ip_packet(packet, view, problem) != IpError::none) continue;
    ++accepted;
    REQUIRE(view.packet.data() == packet.data());
    REQUIRE(view.packet.size() <= packet.size());
    REQUIRE(view.payload.data() >= packet.data() + 20);
    REQUIRE(view.payload.data() + view.payload.size() == view.packet.data() + view.packet.size());
  }
  CHECK(accepted > 1000);
}

}  // namespace unet::ip::ip_test
