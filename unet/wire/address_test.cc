// address_test.cc - classification and text form of addresses, and their groups and stations.
#include "unet/wire/address.h"

#include <catch2/catch.hpp>

#include "unet/wire/ethernet.h"

namespace unet::ip::address_test {
namespace {

IpAddress at(const char* text) {
  const auto address = parse_address(text);
  INFO(text);
  REQUIRE(address);
  return *address;
}

}  // namespace

TEST_CASE("addresses: text, there and back") {
  for (const char* text : {"0.0.0.0", "10.0.1.2", "255.255.255.255", "::", "::1", "fd00:1::2", "fe80::1", "ff02::1:ff00:2"}) {
    CHECK(text_of(at(text)) == text);
  }
  CHECK(at("10.0.1.2").is_ipv4());
  CHECK_FALSE(at("fd00::1").is_ipv4());
  CHECK(at("10.0.1.2").wire_size() == 4);
  CHECK(at("10.0.1.2").wire()[0] == 10);
  CHECK(at("fd00::1").wire_size() == 16);
  CHECK(ipv4_address(0x0A000102u) == at("10.0.1.2"));
  CHECK(at("::ffff:10.0.1.2") == at("10.0.1.2"));
  for (const char* text : {"", "10.0.1", "10.0.1.256", "10.0.1.2.3", "fd00::1::2", "host", "10.0.1.2/24", " 10.0.1.2"}) {
    CAPTURE(text);
    const auto refused = parse_address(text);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == Errc::invalid_argument);
  }
}

TEST_CASE("addresses: those that one host can have") {
  for (const char* text : {"10.0.0.1", "223.255.255.255", "127.0.0.1", "fd00::1", "fe80::1", "::1"}) CHECK(parse_ip(text));
  for (const char* text : {"0.0.0.0", "0.1.2.3", "224.0.0.1", "255.255.255.255", "::", "ff02::1", "::ffff:10.0.0.1"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_ip(text));
  }
  for (const char* text : {"10.0.0.1", "fd00::1", "fe80::1"}) CHECK(at(text).is_wire_host(at(text).is_ipv4()));
  for (const char* text : {"127.0.0.1", "::1", "0.0.0.0", "224.0.0.1", "ff02::1"}) CHECK_FALSE(at(text).is_wire_host(at(text).is_ipv4()));
  CHECK_FALSE(at("fd00::1").is_wire_host(true));
  CHECK_FALSE(at("10.0.0.1").is_wire_host(false));
}

TEST_CASE("addresses: classification") {
  struct Kind {
    const char* text;
    bool unspecified, loopback, multicast, link_local, limited_broadcast;
  };
  const Kind kinds[] = {
      {"0.0.0.0", true, false, false, false, false},         {"::", true, false, false, false, false},
      {"0.0.0.1", false, false, false, false, false},        {"127.0.0.1", false, true, false, false, false},
      {"127.255.255.254", false, true, false, false, false}, {"::1", false, true, false, false, false},
      {"::2", false, false, false, false, false},            {"223.255.255.255", false, false, false, false, false},
      {"224.0.0.0", false, false, true, false, false},       {"239.255.255.255", false, false, true, false, false},
      {"240.0.0.1", false, false, false, false, false},      {"ff02::1", false, false, true, false, false},
      {"fe00::1", false, false, false, false, false},        {"169.254.1.1", false, false, false, true, false},
      {"169.253.1.1", false, false, false, false, false},    {"fe80::1", false, false, false, true, false},
      {"febf::1", false, false, false, true, false},         {"fec0::1", false, false, false, false, false},
      {"255.255.255.255", false, false, false, false, true}, {"10.0.0.1", false, false, false, false, false},
  };
  for (const Kind& kind : kinds) {
    CAPTURE(kind.text);
    const IpAddress address = at(kind.text);
    CHECK(address.is_unspecified() == kind.unspecified);
    CHECK(address.is_loopback() == kind.loopback);
    CHECK(address.is_multicast() == kind.multicast);
    CHECK(address.is_link_local() == kind.link_local);
    CHECK(address.is_limited_broadcast() == kind.limited_broadcast);
  }
}

TEST_CASE("networks and their broadcasts") {
  CHECK(same_network(at("10.0.1.2"), at("10.0.1.200"), 24));
  CHECK_FALSE(same_network(at("10.0.1.2"), at("10.0.2.2"), 24));
  CHECK(same_network(at("10.0.1.2"), at("10.0.2.2"), 22));
  CHECK(same_network(at("10.0.1.2"), at("192.168.0.1"), 0));
  CHECK_FALSE(same_network(at("10.0.1.2"), at("10.0.1.3"), 32));
  CHECK_FALSE(same_network(at("10.0.1.2"), at("fd00::1"), 0));
  CHECK(same_network(at("fd00:1::2"), at("fd00:1::ffff"), 64));
  CHECK_FALSE(same_network(at("fd00:1::2"), at("fd00:1::3"), 128));
  CHECK(same_network(at("fd00:1::2"), at("fd00:1::3"), 127));
  CHECK(same_network(at("fd00:1::2"), at("8000::"), 1));
  CHECK(same_network(at("fd00:1::2"), at("fd00:1:0:1::"), 63));
  CHECK_FALSE(same_network(at("fd00:1::2"), at("fd00:1:0:1::"), 64));
  CHECK_FALSE(same_network(at("fd00:1::2"), at("fd00:1:0:0:8000::"), 65));
  CHECK_FALSE(same_network(at("fd00:1::2"), at("fd00:1:0:1::2"), 128));
  CHECK(same_network(at("fd00:1::2"), at("1::"), 0));

  CHECK(is_directed_broadcast(at("10.0.1.255"), at("10.0.1.2"), 24));
  CHECK(is_directed_broadcast(at("10.0.1.255"), at("10.0.0.2"), 23));
  CHECK_FALSE(is_directed_broadcast(at("10.0.0.255"), at("10.0.1.2"), 23));
  CHECK_FALSE(is_directed_broadcast(at("10.0.2.255"), at("10.0.1.2"), 24));
  CHECK(is_directed_broadcast(at("10.0.1.3"), at("10.0.1.2"), 30));
  CHECK_FALSE(is_directed_broadcast(at("10.0.1.3"), at("10.0.1.2"), 31));  // RFC 3021
  CHECK_FALSE(is_directed_broadcast(at("10.0.1.2"), at("10.0.1.2"), 32));
  CHECK(is_directed_broadcast(at("255.255.255.255"), at("10.0.1.2"), 0));
  CHECK_FALSE(is_directed_broadcast(at("fd00::ffff"), at("fd00::1"), 112));
}

TEST_CASE("hashes spread neighbouring addresses over a table") {
  for (const bool ipv4 : {true, false}) {
    for (const uint64_t seed : {1, 2}) {
      std::array<uint32_t, 64> places{};
      IpAddress address = at(ipv4 ? "10.0.0.0" : "fd00:1::");
      for (uint32_t i = 0; i < 64 * 64; ++i) {
        address.bytes[15] = static_cast<uint8_t>(i);
        address.bytes[14] = static_cast<uint8_t>(i >> 8);
        ++places[hash_of(address, seed) % places.size()];
      }
      for (const uint32_t count : places) {
        CHECK(count > 16);
        CHECK(count < 160);
      }
      CHECK(hash_of(address, seed) != hash_of(address, seed + 1));
    }
  }
}

TEST_CASE("addresses: solicited-node groups, and the stations of groups") {
  CHECK(solicited_node(at("fd00::12:3456:789a")) == at("ff02::1:ff56:789a"));
  CHECK(group_station(at("224.0.0.1")) == (MacAddress{0x01, 0x00, 0x5e, 0, 0, 1}));
  CHECK(group_station(at("239.129.2.3")) == (MacAddress{0x01, 0x00, 0x5e, 1, 2, 3}));  // 23 bits only
  CHECK(group_station(at("ff02::1:ff56:789a")) == (MacAddress{0x33, 0x33, 0xff, 0x56, 0x78, 0x9a}));
  CHECK(link_local({0x02, 0x11, 0x22, 0x33, 0x44, 0x55}) == at("fe80::11:22ff:fe33:4455"));
  CHECK_FALSE(is_station(group_station(at("224.0.0.1"))));
  CHECK_FALSE(is_station(kBroadcast));
  CHECK_FALSE(is_station({}));
  CHECK(is_station({0x02, 0, 0, 0, 0, 1}));
}

}  // namespace unet::ip::address_test
