// datagram_test.cc - headers against bytes computed by hand, and all errors of a datagram.
#include "drivers/udp/datagram.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <vector>

using namespace unet;
using namespace unet::drivers;

namespace {

constexpr MacAddress kA{2, 0, 0, 0, 0, 1}, kB{2, 0, 0, 0, 0, 2};
constexpr uint16_t kPort = 849;

struct Path {
  DatagramAddress from, to;
};
Path path(bool ipv4) {
  return {{kA, *parse_ip(ipv4 ? "10.0.1.2" : "fd00:1::2"), kPort}, {kB, *parse_ip(ipv4 ? "10.0.2.2" : "fd00:2::2"), kPort}};
}

// Makes a datagram with the template, with `external` of its bytes in another place while the checksum is computed.
std::vector<std::byte> datagram(const Path& path, uint32_t length, uint32_t external = 0, uint16_t port = 0) {
  const DatagramTemplate headers(path.from, path.to.ip, 64);
  std::vector<std::byte> frame(headers.size() + length);
  for (uint32_t i = 0; i < length; ++i) frame[headers.size() + i] = static_cast<std::byte>(i * 7 + 3);
  std::vector<std::byte> more(frame.end() - external, frame.end());
  std::fill(frame.end() - external, frame.end(), std::byte{0xEE});
  headers.write(frame.data(), kB, length, more.data(), external, port);
  std::copy(more.begin(), more.end(), frame.end() - external);
  return frame;
}

DatagramError parse(const std::vector<std::byte>& frame, const DatagramAddress& own) {
  DatagramView view;
  return parse_datagram(frame, own, view);
}

// Corrects the IPv4 header's checksum after a change.
void sum_ipv4(std::vector<std::byte>& frame) {
  frame[24] = frame[25] = std::byte{0};
  const uint16_t sum = checksum_fold(checksum_add(0, frame.data() + 14, 20));
  std::memcpy(&frame[24], &sum, 2);
}

}  // namespace

TEST_CASE("a datagram may come from each of so many ports, and from no other") {
  const bool ipv4 = GENERATE(true, false);
  Path p = path(ipv4);
  p.to.ports = 16;
  for (const uint16_t port : {uint16_t{0}, uint16_t{1}, uint16_t{15}, uint16_t{16}, uint16_t{174}, uint16_t{0xFFFF}}) {
    CAPTURE(port);
    const auto frame = datagram(p, 102, 40, port);
    const size_t at = ipv4 ? 34 : 54;
    CHECK(std::to_integer<unsigned>(frame[at]) * 256 + std::to_integer<unsigned>(frame[at + 1]) == static_cast<uint16_t>(kPort + port));
    CHECK(std::to_integer<unsigned>(frame[at + 2]) * 256 + std::to_integer<unsigned>(frame[at + 3]) == kPort);
    CHECK(parse(frame, p.to) == (port < 16 ? DatagramError::none : DatagramError::wrong_port));  // its checksum is correct
  }
  p.to.ports = 1;
  CHECK(parse(datagram(p, 10, 0, 1), p.to) == DatagramError::wrong_port);
}

TEST_CASE("an IPv4 header, byte by byte") {
  const auto frame = datagram(path(true), 4);
  const uint8_t expected[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, 0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0x23, 0xca,
                              10, 0, 1, 2, 10, 0, 2, 2, 0x03, 0x51, 0x03, 0x51, 0, 12, 0, 0};
  REQUIRE(frame.size() == sizeof expected + 4);
  CHECK(std::memcmp(frame.data(), expected, sizeof expected) == 0);
}

TEST_CASE("what the template writes is parsed, whatever the length") {
  for (const bool ipv4 : {true, false}) {
    const Path p = path(ipv4);
    for (const uint32_t length : {0u, 1u, 2u, 3u, 24u, 25u, 63u, 64u, 1399u, 1400u}) {
      auto frame = datagram(p, length);
      for (const size_t padding : {0, 5}) {
        frame.resize(frame.size() + padding);  // of Ethernet
        DatagramView view;
        REQUIRE(parse_datagram(frame, p.to, view) == DatagramError::none);
        CHECK(view.from == p.from.ip);
        REQUIRE(view.payload.size() == length);
        for (uint32_t i = 0; i < length; ++i) REQUIRE(view.payload[i] == static_cast<std::byte>(i * 7 + 3));
      }
    }
    CHECK(parse(datagram(p, 1000, 968), p.to) == DatagramError::none);
    CHECK(parse(datagram(p, 999, 967), p.to) == DatagramError::none);
  }
}

TEST_CASE("a datagram cut anywhere is refused") {
  for (const bool ipv4 : {true, false}) {
    const Path p = path(ipv4);
    const auto frame = datagram(p, 40);
    for (size_t length = 0; length < frame.size(); ++length) {
      const std::vector<std::byte> cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(length));
      const DatagramError error = parse(cut, p.to);
      CHECK(error == (length < 14 ? DatagramError::not_ip : DatagramError::bad_length));
    }
  }
}

TEST_CASE("no bit of an IPv6 datagram, and none of an IPv4 header, can change unnoticed") {
  for (const bool ipv4 : {true, false}) {
    const Path p = path(ipv4);
    const auto good = datagram(p, 40);
    const size_t checked = ipv4 ? 14 + 20 : good.size();
    for (size_t bit = 0; bit < checked * 8; ++bit) {
      auto frame = good;
      frame[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      const bool free = (bit / 8 >= 6 && bit / 8 < 12) ||                              // the Ethernet source
                        (!ipv4 && (bit / 8 == 21 || (bit / 8 >= 14 && bit / 8 < 18 && bit != 14 * 8 + 4 && bit != 14 * 8 + 5 &&
                                                     bit != 14 * 8 + 6 && bit != 14 * 8 + 7)));  // traffic class, flow, hops
      INFO((ipv4 ? "IPv4" : "IPv6") << " bit " << bit);
      CHECK((parse(frame, p.to) == DatagramError::none) == free);
    }
  }
}

TEST_CASE("every way to be wrong has its name") {
  const Path p = path(true);
  const auto changed = [&](auto change) {
    auto frame = datagram(p, 40);
    change(frame);
    sum_ipv4(frame);
    return parse(frame, p.to);
  };
  CHECK(changed([](auto&) {}) == DatagramError::none);
  CHECK(changed([](auto& f) { f[13] = std::byte{6}; }) == DatagramError::not_ip);
  CHECK(changed([](auto& f) { f[5] = std::byte{9}; }) == DatagramError::wrong_address);
  CHECK(changed([](auto& f) { f[14] = std::byte{0x46}; }) == DatagramError::bad_header);
  CHECK(changed([](auto& f) { f[17] = std::byte{200}; }) == DatagramError::bad_length);
  CHECK(changed([](auto& f) { f[17] = std::byte{19}; }) == DatagramError::bad_length);
  CHECK(changed([](auto& f) { f[20] = std::byte{0x20}; }) == DatagramError::fragment);
  CHECK(changed([](auto& f) { f[21] = std::byte{1}; }) == DatagramError::fragment);
  CHECK(changed([](auto& f) { f[33] = std::byte{9}; }) == DatagramError::wrong_address);
  CHECK(changed([](auto& f) { f[23] = std::byte{1}; }) == DatagramError::not_udp);
  CHECK(changed([](auto& f) { f[35] = std::byte{9}; }) == DatagramError::wrong_port);
  CHECK(changed([](auto& f) { f[37] = std::byte{9}; }) == DatagramError::wrong_port);
  CHECK(changed([](auto& f) { f[39] = std::byte{47}; }) == DatagramError::bad_length);
  CHECK(changed([](auto& f) { f[40] = std::byte{1}; }) == DatagramError::bad_checksum);
  auto frame = datagram(p, 40);
  frame[24] ^= std::byte{1};
  CHECK(parse(frame, p.to) == DatagramError::bad_header);

  const Path six = path(false);
  frame = datagram(six, 40);
  frame[60] = frame[61] = std::byte{0};
  CHECK(parse(frame, six.to) == DatagramError::bad_checksum);
  frame = datagram(six, 40);
  frame[20] = std::byte{44};
  CHECK(parse(frame, six.to) == DatagramError::fragment);
  CHECK(parse(datagram(six, 40), p.to) == DatagramError::not_ip);
}

TEST_CASE("who sends a datagram can be one host of that version of IP") {
  const auto from = [](bool ipv4, std::array<uint8_t, 16> source) {
    const Path p = path(ipv4);
    auto frame = datagram(p, 40);
    if (ipv4) {
      std::memcpy(&frame[14 + 12], source.data(), 4);
      sum_ipv4(frame);
    } else {
      std::memcpy(&frame[14 + 8], source.data(), 16);
      const uint64_t sum = checksum_add16(checksum_add16(checksum_add(0, &frame[14 + 8], 32), kProtocolUdp), 48);
      frame[14 + 40 + 6] = frame[14 + 40 + 7] = std::byte{0};
      const uint16_t checksum = checksum_fold(checksum_add(sum, &frame[14 + 40], 48));
      std::memcpy(&frame[14 + 40 + 6], &checksum, 2);
    }
    return parse(frame, p.to);
  };
  CHECK(from(true, {10, 9, 8, 7}) == DatagramError::none);
  CHECK(from(true, {223, 255, 255, 255}) == DatagramError::none);
  CHECK(from(true, {0, 0, 0, 0}) == DatagramError::wrong_address);
  CHECK(from(true, {0, 0, 0, 1}) == DatagramError::wrong_address);
  CHECK(from(true, {224, 0, 0, 1}) == DatagramError::wrong_address);
  CHECK(from(true, {255, 255, 255, 255}) == DatagramError::wrong_address);
  CHECK(from(false, {0xfd, 7}) == DatagramError::none);
  CHECK(from(false, {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}) == DatagramError::none);
  CHECK(from(false, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 2}) == DatagramError::wrong_address);  // ::ffff:10.0.1.2
  CHECK(from(false, {}) == DatagramError::wrong_address);
  CHECK(from(false, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}) == DatagramError::wrong_address);
  CHECK(from(false, {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}) == DatagramError::wrong_address);
}

TEST_CASE("nothing beside an address goes out with it") {
  // An IPv6 datagram to an address that maps an IPv4 one must contain its 16 bytes, not 16 bytes from its 12th on.
  struct {
    IpAddress to{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 2}};
    std::array<uint8_t, 16> beside{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  } memory;
  const DatagramTemplate headers(path(false).from, memory.to, 64);
  std::array<std::byte, 128> frame{};
  headers.write(frame.data(), kB, 0, nullptr, 0);
  CHECK(std::memcmp(&frame[14 + 24], memory.to.bytes.data(), 16) == 0);
}
