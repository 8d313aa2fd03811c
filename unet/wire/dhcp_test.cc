// dhcp_test.cc - client messages byte by byte, server messages, and every way in which these can be invalid.
#include "unet/wire/dhcp.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace unet::ip::dhcp_test {
namespace {

constexpr MacAddress kOwn{2, 0, 0, 0, 0, 1};
constexpr uint8_t kOffer = 2, kAck = 5, kNak = 6;

using Octets = std::vector<uint8_t>;

// A server's message: the fixed part, and the given options.
std::vector<std::byte> message(const Octets& options) {
  Octets all(240);
  const Octets start{2, 1, 6, 0, 0x11, 0x22, 0x33, 0x44};
  std::copy(start.begin(), start.end(), all.begin());
  const Octets yours{10, 0, 1, 100}, cookie{0x63, 0x82, 0x53, 0x63};
  std::copy(yours.begin(), yours.end(), all.begin() + 16);
  std::copy(kOwn.begin(), kOwn.end(), all.begin() + 28);
  std::copy(cookie.begin(), cookie.end(), all.begin() + 236);
  all.insert(all.end(), options.begin(), options.end());
  std::vector<std::byte> bytes;
  for (const uint8_t each : all) bytes.push_back(std::byte{each});
  return bytes;
}
Octets operator+(Octets a, const Octets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Octets kind(uint8_t which) { return {53, 1, which}; }

const Octets kServer{54, 4, 10, 0, 1, 1}, kLease{51, 4, 0, 0, 0x0E, 0x10}, kMask{1, 4, 255, 255, 255, 0}, kEnd{255};

bool parses(const Octets& options) {
  DhcpReply reply;
  return parse_dhcp(message(options), reply);
}

}  // namespace

TEST_CASE("DHCP: a discover and a request, byte by byte") {
  std::vector<std::byte> bytes(kDhcpClientBytes, std::byte{0xAA});
  emit_dhcp(bytes.data(), {.kind = DhcpKind::discover, .transaction = 0x11223344, .seconds = 7, .broadcast = true, .station = kOwn,
                           .size_max = 1500});
  Octets expected(kDhcpClientBytes);
  const Octets start{1, 1, 6, 0, 0x11, 0x22, 0x33, 0x44, 0, 7, 0x80, 0};
  std::copy(start.begin(), start.end(), expected.begin());
  std::copy(kOwn.begin(), kOwn.end(), expected.begin() + 28);
  const Octets id{61, 15, 255, 0, 0, 0, 1, 0, 3, 0, 1, 2, 0, 0, 0, 0, 1};
  const Octets behind = Octets{0x63, 0x82, 0x53, 0x63, 53, 1, 1} + id + Octets{55, 7, 1, 3, 6, 26, 51, 58, 59, 57, 2, 0x05, 0xDC, 255};
  std::copy(behind.begin(), behind.end(), expected.begin() + 236);
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO(i);
    CHECK(std::to_integer<uint8_t>(bytes[i]) == expected[i]);
  }
  emit_dhcp(bytes.data(), {.kind = DhcpKind::decline, .transaction = 1, .station = kOwn, .requested = *parse_ip("10.0.1.100"),
                           .server = *parse_ip("10.0.1.1")});
  const Octets decline = Octets{53, 1, 4} + id + Octets{50, 4, 10, 0, 1, 100, 54, 4, 10, 0, 1, 1, 255, 0};
  for (size_t i = 0; i < decline.size(); ++i) CHECK(std::to_integer<uint8_t>(bytes[240 + i]) == decline[i]);
}

TEST_CASE("DHCP: a server's options, and the defaults for missing ones") {
  DhcpReply reply;
  const Octets more{0, 0, 3, 8, 10, 0, 1, 254, 10, 0, 1, 253, 6, 4, 9, 9, 9, 9, 26, 2, 0x05, 0x78, 58, 4, 0, 0, 0, 9, 59, 4, 0, 0, 1, 0,
                    200, 1, 1, 6, 8, 8, 8, 8, 8, 8, 8, 4, 4, 255, 53};
  REQUIRE(parse_dhcp(message(kind(kAck) + kServer + kLease + kMask + more), reply));
  CHECK(reply.kind == DhcpKind::ack);
  CHECK(reply.transaction == 0x11223344);
  CHECK(reply.station == kOwn);
  CHECK(reply.address == *parse_ip("10.0.1.100"));
  CHECK(reply.server == *parse_ip("10.0.1.1"));
  CHECK(reply.lease_s == 3600);
  CHECK(reply.prefix == 24);
  CHECK(reply.router == *parse_ip("10.0.1.254"));
  CHECK(reply.mtu == 1400);
  CHECK(reply.renew_s == 9);
  CHECK(reply.rebind_s == 256);
  REQUIRE(reply.name_server_count == 3);
  CHECK(reply.name_servers[0] == *parse_ip("9.9.9.9"));
  CHECK(reply.name_servers[2] == *parse_ip("8.8.4.4"));
  CHECK(reply.client_id.empty());
  REQUIRE(parse_dhcp(message(kind(kOffer) + kServer + kLease), reply));  // also without an end option
  CHECK(reply.prefix == 8);
  CHECK_FALSE(reply.router);
  CHECK(reply.mtu == 0);
  CHECK(reply.renew_s == 0);
  for (const auto& [first, prefix] : {std::pair<uint8_t, uint8_t>{127 + 1, 16}, {191, 16}, {192, 24}, {223, 24}, {126, 8}}) {
    std::vector<std::byte> bytes = message(kind(kOffer) + kServer + kLease);
    bytes[16] = std::byte{first};
    REQUIRE(parse_dhcp(bytes, reply));
    CHECK(reply.prefix == prefix);
  }
  // A nak has little more than its kind and server.
  REQUIRE(parse_dhcp(message(kind(kNak) + kServer + Octets{56, 2, 'n', 'o'} + kEnd), reply));
  CHECK(reply.kind == DhcpKind::nak);
  // A reply with a client identifier.
  const auto id = dhcp_client_id(kOwn);
  const std::vector<std::byte> with_id = message(kind(kNak) + kServer + Octets{61, 15} + Octets(id.begin(), id.end()) + kEnd);
  REQUIRE(parse_dhcp(with_id, reply));
  REQUIRE(reply.client_id.size() == id.size());
  CHECK(std::memcmp(reply.client_id.data(), id.data(), id.size()) == 0);
}

TEST_CASE("DHCP: option overload: options in `file` and `name`") {
  std::vector<std::byte> bytes = message(kind(kOffer) + kServer + Octets{52, 1, 3} + kEnd);
  const Octets in_file = kLease + kEnd, in_name = kMask + Octets{52, 1, 3} + kEnd;
  for (size_t i = 0; i < in_file.size(); ++i) bytes[108 + i] = std::byte{in_file[i]};
  for (size_t i = 0; i < in_name.size(); ++i) bytes[44 + i] = std::byte{in_name[i]};
  DhcpReply reply;
  REQUIRE(parse_dhcp(bytes, reply));
  CHECK(reply.lease_s == 3600);
  CHECK(reply.prefix == 24);
  bytes[240 + 3 + 6 + 2] = std::byte{2};  // `name` only: no lease
  CHECK_FALSE(parse_dhcp(bytes, reply));
  bytes[240 + 3 + 6 + 2] = std::byte{1};
  REQUIRE(parse_dhcp(bytes, reply));
  CHECK(reply.prefix == 8);
  bytes[108 + 127] = std::byte{1};  // an option that the end of the field truncates
  for (size_t i = 108 + 6; i < 108 + 127; ++i) bytes[i] = std::byte{0};
  CHECK_FALSE(parse_dhcp(bytes, reply));
}

TEST_CASE("what no server says to a client is refused") {
  const Octets good = kind(kAck) + kServer + kLease + kMask + kEnd;
  REQUIRE(parses(good));
  DhcpReply reply;
  const std::vector<std::byte> bytes = message(good);
  for (size_t length = 0; length + 1 < bytes.size(); ++length) {
    INFO(length);
    // The mask after the lease may be missing as a whole.
    CHECK(parse_dhcp(Bytes(bytes).first(length), reply) == (length == 240 + 3 + 6 + 6));
  }
  for (const size_t at : {0, 1, 2, 236, 237, 238, 239}) {
    std::vector<std::byte> wrong = bytes;
    wrong[at] ^= std::byte{0x10};
    CHECK_FALSE(parse_dhcp(wrong, reply));
  }
  // No message type, an unknown one, or a client's.
  CHECK_FALSE(parses(kServer + kLease + kEnd));
  for (const uint8_t which : Octets{0, 1, 3, 4, 7, 8, 13, 255}) CHECK_FALSE(parses(kind(which) + kServer + kLease + kEnd));
  CHECK_FALSE(parses(Octets{53, 2, 5, 5} + kServer + kLease + kEnd));
  // No server identifier, or an invalid one.
  CHECK_FALSE(parses(kind(kAck) + kLease + kEnd));
  CHECK_FALSE(parses(kind(kNak) + kEnd));
  for (const uint8_t first : Octets{0, 127, 224, 255}) CHECK_FALSE(parses(kind(kAck) + Octets{54, 4, first, 0, 1, 1} + kLease + kEnd));
  CHECK_FALSE(parses(kind(kAck) + Octets{54, 3, 10, 0, 1} + kLease + kEnd));
  // No lease time, or an invalid one.
  CHECK_FALSE(parses(kind(kAck) + kServer + kEnd));
  CHECK_FALSE(parses(kind(kAck) + kServer + Octets{51, 4, 0, 0, 0, 0} + kEnd));
  CHECK_FALSE(parses(kind(kAck) + kServer + Octets{51, 2, 14, 16} + kEnd));
  // Masks that are not contiguous, or 0.
  CHECK_FALSE(parses(kind(kAck) + kServer + kLease + Octets{1, 4, 255, 0, 255, 0} + kEnd));
  CHECK_FALSE(parses(kind(kAck) + kServer + kLease + Octets{1, 4, 0, 0, 0, 0} + kEnd));
  CHECK_FALSE(parses(kind(kAck) + kServer + kLease + Octets{1, 3, 255, 0, 0} + kEnd));
  CHECK(parses(kind(kAck) + kServer + kLease + Octets{1, 4, 255, 255, 255, 255} + kEnd));
  // Address lists of invalid length; addresses that no host can have are skipped.
  CHECK_FALSE(parses(kind(kAck) + kServer + kLease + Octets{3, 0} + kEnd));
  CHECK_FALSE(parses(kind(kAck) + kServer + kLease + Octets{6, 5, 1, 1, 1, 1, 1} + kEnd));
  CHECK_FALSE(parses(kind(kAck) + kServer + kLease + Octets{26, 1, 5} + kEnd));
  REQUIRE(parse_dhcp(message(kind(kAck) + kServer + kLease + Octets{3, 8, 224, 0, 0, 1, 10, 0, 1, 9} + kEnd), reply));
  CHECK(reply.router == *parse_ip("10.0.1.9"));
  // Addresses that no host can have.
  for (const uint8_t first : Octets{0, 127, 224, 255}) {
    std::vector<std::byte> wrong = bytes;
    wrong[16] = std::byte{first};
    CHECK_FALSE(parse_dhcp(wrong, reply));
  }
  std::vector<std::byte> everybody = bytes;
  everybody[19] = std::byte{255};
  CHECK_FALSE(parse_dhcp(everybody, reply));
  // The maximum number of options, and one more.
  Octets many = kind(kAck) + kServer + kLease;
  for (uint32_t i = 3; i < kDhcpOptionsMax; ++i) many = many + Octets{200, 0};
  CHECK(parses(many));
  CHECK_FALSE(parses(many + Octets{200, 0}));
}

TEST_CASE("any bytes at all: refused, or one host's address for a time") {
  std::mt19937 random(1);
  const std::vector<std::byte> good = message(kind(kAck) + kServer + kLease + kMask + kEnd);
  DhcpReply reply;
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes = good;
    for (uint32_t change = 0; change <= random() % 3; ++change) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    bytes.resize(bytes.size() - random() % 4);
    if (!parse_dhcp(std::vector<std::byte>(bytes), reply) || reply.kind == DhcpKind::nak) continue;
    CHECK((reply.address.is_one_host(true) && reply.lease_s != 0 && reply.prefix >= 1 && reply.prefix <= 32));
  }
}

}  // namespace unet::ip::dhcp_test
