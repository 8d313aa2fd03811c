// icmp_test.cc - messages of both versions by hand, emitted messages parse, and invalid ones are refused.
#include "unet/wire/icmp.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <vector>

#include "unet/wire/checksum.h"

namespace unet::ip::icmp_test {
namespace {

struct Ends {
  explicit Ends(bool ipv4)
      : from(*parse_ip(ipv4 ? "10.0.1.2" : "fd00:1::2")), to(*parse_ip(ipv4 ? "10.0.2.2" : "fd00:2::2")) {}
  IpAddress from, to;
};

IpView packet_of(bool ipv4, Bytes message) {
  const Ends ends(ipv4);
  IpView packet;
  packet.ipv4 = ipv4;
  packet.from = ends.from;
  packet.to = ends.to;
  packet.protocol = ipv4 ? Protocol::kIcmp : Protocol::kIcmp6;
  packet.payload = message;
  return packet;
}

// A message in wire format, with its checksum.
std::vector<std::byte> message(bool ipv4, std::vector<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  const Ends ends(ipv4);
  sum_icmp(bytes.data(), bytes.size(), ends.from, ends.to);
  return bytes;
}

std::vector<std::byte> bytes_of(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 3);
  return bytes;
}

}  // namespace

TEST_CASE("ICMP: echo, byte by byte, there and back") {
  const std::vector<std::byte> data = bytes_of(2);
  const Ends four(true);
  std::vector<std::byte> echo(kIcmpBytes);
  emit_echo(echo.data(), four.from, four.to, false, 0x1234, 7, data);
  // 0800 + 1234 + 0007 + 030a = 1d45, and its complement.
  const uint8_t expected[] = {8, 0, 0xe2, 0xba, 0x12, 0x34, 0, 7};
  CHECK(std::memcmp(echo.data(), expected, sizeof expected) == 0);
  for (const bool ipv4 : {true, false}) {
    for (const bool reply : {true, false}) {
      for (const size_t length : {0, 1, 56, 1472}) {
        const Ends ends(ipv4);
        const std::vector<std::byte> sent = bytes_of(length);
        std::vector<std::byte> whole(kIcmpBytes);
        emit_echo(whole.data(), ends.from, ends.to, reply, 0xBEEF, 0xFFFE, sent);
        whole.insert(whole.end(), sent.begin(), sent.end());
        IcmpView view;
        REQUIRE(parse_icmp(packet_of(ipv4, whole), view) == IcmpError::none);
        CHECK(view.kind == (reply ? IcmpKind::echo_reply : IcmpKind::echo_request));
        CHECK(view.id == 0xBEEF);
        CHECK(view.sequence == 0xFFFE);
        CHECK(view.rest.size() == length);
        CHECK_FALSE(view.error);
      }
    }
  }
}

TEST_CASE("ICMP: types and codes of both versions") {
  struct Row {
    bool ipv4;
    std::vector<int> bytes;
    IcmpKind kind;
    Unreachable why;
    uint32_t mtu, pointer;
    bool error;
  };
  const Row rows[] = {
      {true, {3, 0, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::network, 0, 0, true},
      {true, {3, 1, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::host, 0, 0, true},
      {true, {3, 2, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::protocol, 0, 0, true},
      {true, {3, 3, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::port, 0, 0, true},
      {true, {3, 4, 0, 0, 0, 0, 5, 0xDC}, IcmpKind::packet_too_big, Unreachable::network, 1500, 0, true},
      {true, {3, 4, 0, 0, 0, 0, 0, 0}, IcmpKind::packet_too_big, Unreachable::network, 0, 0, true},
      {true, {3, 5, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::other, 0, 0, true},
      {true, {3, 6, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::network, 0, 0, true},
      {true, {3, 13, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::prohibited, 0, 0, true},
      {true, {3, 255, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::other, 0, 0, true},
      {true, {5, 1, 0, 0, 10, 0, 0, 1}, IcmpKind::redirect, Unreachable::network, 0, 0, true},
      {true, {11, 0, 0, 0, 0, 0, 0, 0}, IcmpKind::time_exceeded, Unreachable::network, 0, 0, true},
      {true, {12, 0, 0, 0, 20, 0, 0, 0}, IcmpKind::parameter_problem, Unreachable::network, 0, 20, true},
      {true, {13, 0, 0, 0, 0, 0, 0, 0}, IcmpKind::other, Unreachable::network, 0, 0, false},
      {true, {4, 0, 0, 0, 0, 0, 0, 0}, IcmpKind::other, Unreachable::network, 0, 0, true},
      {false, {1, 0, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::network, 0, 0, true},
      {false, {1, 1, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::prohibited, 0, 0, true},
      {false, {1, 3, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::host, 0, 0, true},
      {false, {1, 4, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::port, 0, 0, true},
      {false, {1, 255, 0, 0, 0, 0, 0, 0}, IcmpKind::unreachable, Unreachable::other, 0, 0, true},
      {false, {2, 0, 0, 0, 0, 1, 0, 0}, IcmpKind::packet_too_big, Unreachable::network, 65536, 0, true},
      {false, {3, 1, 0, 0, 0, 0, 0, 0}, IcmpKind::time_exceeded, Unreachable::network, 0, 0, true},
      {false, {4, 1, 0, 0, 0, 0, 0, 40}, IcmpKind::parameter_problem, Unreachable::network, 0, 40, true},
      {false, {100, 1, 0, 0, 0, 0, 0, 0}, IcmpKind::other, Unreachable::network, 0, 0, true},
      {false, {135, 0, 0, 0, 0, 0, 0, 0}, IcmpKind::other, Unreachable::network, 0, 0, false},
      {false, {137, 0, 0, 0, 0, 0, 0, 0}, IcmpKind::redirect, Unreachable::network, 0, 0, true},
  };
  for (const Row& row : rows) {
    CAPTURE(row.ipv4, row.bytes);
    const std::vector<std::byte> bytes = message(row.ipv4, row.bytes);
    IcmpView view;
    REQUIRE(parse_icmp(packet_of(row.ipv4, bytes), view) == IcmpError::none);
    CHECK(view.kind == row.kind);
    CHECK(view.why == row.why);
    CHECK(view.mtu == row.mtu);
    CHECK(view.pointer == row.pointer);
    CHECK(view.error == row.error);
    CHECK(view.type == row.bytes[0]);
    CHECK(view.code == row.bytes[1]);
    CHECK(view.rest.size() == (row.kind == IcmpKind::other && !row.error ? 4 : 0));
  }
}

TEST_CASE("ICMP: errors quote the right length, and parse") {
  const IcmpErrorFields errors[] = {
      {.kind = IcmpKind::unreachable, .why = Unreachable::network},
      {.kind = IcmpKind::unreachable, .why = Unreachable::host},
      {.kind = IcmpKind::unreachable, .why = Unreachable::port},
      {.kind = IcmpKind::unreachable, .why = Unreachable::prohibited},
      {.kind = IcmpKind::packet_too_big, .value = 1400},
      {.kind = IcmpKind::time_exceeded, .code = 1},
      {.kind = IcmpKind::parameter_problem, .value = 40},
  };
  for (const bool ipv4 : {true, false}) {
    const Ends ends(ipv4);
    for (const IcmpErrorFields& error : errors) {
      for (const size_t length : {0, 28, 1500}) {
        const std::vector<std::byte> about = bytes_of(length);
        std::vector<std::byte> bytes(2000);
        bytes.resize(emit_icmp_error(bytes.data(), ends.from, ends.to, error, about));
        CHECK(bytes.size() + (ipv4 ? 20 : 40) <= (ipv4 ? 576 : 1280));
        IcmpView view;
        REQUIRE(parse_icmp(packet_of(ipv4, bytes), view) == IcmpError::none);
        CHECK(view.kind == error.kind);
        if (error.kind == IcmpKind::unreachable) CHECK(view.why == error.why);
        if (error.kind == IcmpKind::packet_too_big) CHECK(view.mtu == 1400);
        if (error.kind == IcmpKind::parameter_problem) CHECK(view.pointer == 40);
        if (error.kind == IcmpKind::time_exceeded) CHECK(view.code == 1);
        CHECK(view.rest.size() == std::min<size_t>(length, ipv4 ? kIcmpQuote4Max : kIcmpQuote6Max));
        CHECK(std::equal(view.rest.begin(), view.rest.end(), about.begin()));
      }
    }
  }
  const Ends four(true);
  std::vector<std::byte> bytes(kIcmpBytes);
  emit_icmp_error(bytes.data(), four.from, four.to, {.kind = IcmpKind::unreachable, .why = Unreachable::protocol}, {});
  CHECK(bytes[1] == std::byte{2});
}

TEST_CASE("a message that is cut or changed is refused") {
  for (const bool ipv4 : {true, false}) {
    const std::vector<std::byte> good = message(ipv4, {ipv4 ? 8 : 128, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7});
    IcmpView view;
    for (size_t length = 0; length < good.size(); ++length) {
      const IcmpError error = parse_icmp(packet_of(ipv4, Bytes(good).first(length)), view);
      CHECK(error == (length < kIcmpBytes ? IcmpError::truncated : IcmpError::bad_checksum));
    }
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::vector<std::byte> changed = good;
      changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      CHECK(parse_icmp(packet_of(ipv4, changed), view) == IcmpError::bad_checksum);
    }
    // The pseudo header counts only in IPv6.
    IpView other = packet_of(ipv4, good);
    other.from = *parse_ip(ipv4 ? "10.0.9.9" : "fd00:9::9");
    CHECK(parse_icmp(other, view) == (ipv4 ? IcmpError::none : IcmpError::bad_checksum));
  }
}

}  // namespace unet::ip::icmp_test
