// arp_test.cc - a request byte by byte, and every way in which it can be invalid.
#include "unet/wire/arp.h"

#include <catch2/catch.hpp>

#include <array>
#include <cstring>
#include <vector>

namespace unet::ip::arp_test {
namespace {

const Arp kQuestion{.operation = ArpOperation::request, .sender_mac = {2, 0, 0, 0, 0, 1}, .sender = *parse_ip("10.0.1.2"),
                    .target_mac = {}, .target = *parse_ip("10.0.1.9")};
constexpr std::array<uint8_t, kArpBytes> kBytes{0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 1, 2, 0, 0, 0, 0, 0, 0, 10, 0, 1, 9};

std::vector<std::byte> emit(const Arp& arp) {
  std::vector<std::byte> packet(kArpBytes);
  emit_arp(packet.data(), arp);
  return packet;
}

}  // namespace

TEST_CASE("ARP: a request, byte by byte, there and back") {
  std::vector<std::byte> packet = emit(kQuestion);
  CHECK(std::memcmp(packet.data(), kBytes.data(), kBytes.size()) == 0);
  packet.resize(46);  // Ethernet's padding
  Arp arp;
  REQUIRE(parse_arp(packet, arp));
  CHECK(arp.operation == ArpOperation::request);
  CHECK(arp.sender_mac == kQuestion.sender_mac);
  CHECK(arp.sender == kQuestion.sender);
  CHECK(arp.target == kQuestion.target);
  Arp reply = kQuestion;
  reply.operation = ArpOperation::reply;
  reply.target_mac = {2, 0, 0, 0, 0, 9};
  REQUIRE(parse_arp(emit(reply), arp));
  CHECK(arp.operation == ArpOperation::reply);
  CHECK(arp.target_mac == reply.target_mac);
}

TEST_CASE("what is no ARP for IPv4 on Ethernet is refused") {
  const std::vector<std::byte> good = emit(kQuestion);
  Arp arp;
  for (size_t length = 0; length < good.size(); ++length) CHECK_FALSE(parse_arp(Bytes(good).first(length), arp));
  for (const size_t at : {0, 1, 2, 3, 4, 5, 6}) {
    std::vector<std::byte> wrong = good;
    wrong[at] ^= std::byte{0x10};
    CHECK_FALSE(parse_arp(wrong, arp));
  }
  for (const int operation : {0, 3, 4, 255}) {
    std::vector<std::byte> wrong = good;
    wrong[7] = static_cast<std::byte>(operation);
    CHECK_FALSE(parse_arp(wrong, arp));
  }
  std::vector<std::byte> group = good;
  group[8] = std::byte{3};
  CHECK_FALSE(parse_arp(group, arp));
  for (const char* sender : {"224.0.0.1", "255.255.255.255"}) {
    Arp from = kQuestion;
    from.sender = *parse_address(sender);
    CHECK_FALSE(parse_arp(emit(from), arp));
  }
  Arp probe = kQuestion;
  probe.sender = *parse_address("0.0.0.0");
  CHECK(parse_arp(emit(probe), arp));
  CHECK(arp.sender.is_unspecified());
}

}  // namespace unet::ip::arp_test
