// udp_test.cc - a datagram by hand, emitted datagrams parse, and every way in which a datagram can be invalid.
#include "unet/wire/udp.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <vector>

namespace unet::ip::udp_test {
namespace {

struct Datagram {
  std::vector<std::byte> bytes;
  IpView packet;

  UdpError parse(UdpView& view, bool summed = false) {
    packet.payload = bytes;
    return parse_udp(packet, summed, view);
  }
  UdpError parse(bool summed = false) {
    UdpView view;
    return parse(view, summed);
  }
};

Datagram datagram(bool ipv4, size_t length, uint16_t from = 849, uint16_t to = 53) {
  Datagram d;
  d.packet.ipv4 = ipv4;
  d.packet.from = *parse_ip(ipv4 ? "10.0.1.2" : "fd00:1::2");
  d.packet.to = *parse_ip(ipv4 ? "10.0.2.2" : "fd00:2::2");
  d.bytes.resize(kUdpBytes + length);
  for (size_t i = 0; i < length; ++i) d.bytes[kUdpBytes + i] = static_cast<std::byte>(i * 7 + 3);
  emit_udp_header(d.bytes.data(), d.packet.from, d.packet.to, from, to, Bytes(d.bytes).subspan(kUdpBytes));
  return d;
}

}  // namespace

TEST_CASE("UDP: a datagram, byte by byte") {
  const Datagram d = datagram(true, 4, 849, 849);
  // The sum by hand: 0a00 + 0102 + 0a00 + 0202 + 0011 + 000c + 0351 + 0351 + 000c + 030a + 1118 = 31f1, and its complement.
  const uint8_t expected[] = {0x03, 0x51, 0x03, 0x51, 0, 12, 0xce, 0x0e, 3, 10, 17, 24};
  REQUIRE(d.bytes.size() == sizeof expected);
  CHECK(std::memcmp(d.bytes.data(), expected, sizeof expected) == 0);
}

TEST_CASE("what is emitted is parsed, whatever the length") {
  for (const bool ipv4 : {true, false}) {
    for (const size_t length : {0, 1, 2, 3, 63, 64, 65, 1471, 1472, 9000, 65507}) {
      Datagram d = datagram(ipv4, length);
      d.bytes.resize(d.bytes.size() + length % 3);  // the IP payload may be longer (RFC 768 has its own length)
      UdpView view;
      REQUIRE(d.parse(view) == UdpError::none);
      CHECK(view.from == 849);
      CHECK(view.to == 53);
      CHECK(view.payload.size() == length);
      CHECK(view.payload.data() == d.bytes.data() + kUdpBytes);
    }
  }
}

TEST_CASE("every way in which a datagram can be wrong") {
  for (const bool ipv4 : {true, false}) {
    const Datagram good = datagram(ipv4, 20);
    for (size_t length = 0; length < good.bytes.size(); ++length) {
      Datagram cut = good;
      cut.bytes.resize(length);
      CHECK(cut.parse() == (length < kUdpBytes ? UdpError::truncated : UdpError::bad_length));
    }
    for (size_t bit = 0; bit < good.bytes.size() * 8; ++bit) {
      Datagram changed = good;
      changed.bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      CHECK(changed.parse() != UdpError::none);
    }
    Datagram changed = good;
    changed.bytes[9] ^= std::byte{1};
    CHECK(changed.parse() == UdpError::bad_checksum);
    CHECK(changed.parse(true) == UdpError::none);  // the driver has verified it
    Datagram without = good;
    without.bytes[6] = without.bytes[7] = std::byte{0};
    CHECK(without.parse() == (ipv4 ? UdpError::none : UdpError::no_checksum));
    Datagram tiny = good;
    tiny.bytes[4] = std::byte{0};
    tiny.bytes[5] = std::byte{7};
    CHECK(tiny.parse() == UdpError::bad_length);
    CHECK(datagram(ipv4, 20, 849, 0).parse() == UdpError::bad_port);
    CHECK(datagram(ipv4, 20, 0, 53).parse() == UdpError::none);  // RFC 768: no reply expected
  }
}

TEST_CASE("UDP: a checksum of 0 is sent as ones") {
  // The source port varies, so that the sum takes all values.
  for (uint32_t port = 0; port <= 0xFFFF; ++port) {
    Datagram d = datagram(true, 0, static_cast<uint16_t>(port), 53);
    REQUIRE((d.bytes[6] != std::byte{0} || d.bytes[7] != std::byte{0}));
    REQUIRE(d.parse() == UdpError::none);
  }
}

}  // namespace unet::ip::udp_test
