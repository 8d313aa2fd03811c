// path_mtu_test.cc - which ICMP errors are believed, for how long, and a full cache.
#include "ipstack/ip/path_mtu.h"

#include <catch2/catch.hpp>

namespace unet::ip::path_mtu_test {
namespace {

const IpAddress kA = *parse_ip("10.0.2.2"), kB = *parse_ip("fd00:2::2");

}  // namespace

TEST_CASE("path MTU: lowered for ten minutes, for one address") {
  for (const IpAddress& to : {kA, kB}) {
    PathMtu path;
    CHECK(path.mtu(to, 0) == 1500);
    CHECK(path.handle_too_big(to, 1400, 1500, 0));
    CHECK(path.mtu(to, 1) == 1400);
    CHECK(path.mtu(to == kA ? kB : kA, 1) == 1500);
    CHECK_FALSE(path.handle_too_big(to, 1400, 1500, 2));  // no change
    CHECK_FALSE(path.handle_too_big(to, 1450, 1500, 2));  // never increases
    CHECK(path.handle_too_big(to, 1300, 1400, kSecond));
    CHECK(path.mtu(to, kSecond + 600 * kSecond - 1) == 1300);
    CHECK(path.mtu(to, kSecond + 600 * kSecond) == 1500);
    CHECK(path.counters().lowered == 2);
    CHECK(path.counters().ignored == 2);
    CHECK(path.counters().expired == 1);
  }
}

TEST_CASE("what is absurd is not believed, or not all of it") {
  PathMtu path;
  CHECK_FALSE(path.handle_too_big(kA, 1500, 1500, 0));
  CHECK_FALSE(path.handle_too_big(kA, 9000, 1500, 0));
  CHECK_FALSE(path.handle_too_big(kA, 1400, 1300, 0));  // about a packet that would have fitted
  CHECK(path.handle_too_big(kA, 68, 1500, 0));
  CHECK(path.mtu(kA, 0) == 552);
  CHECK_FALSE(path.handle_too_big(kA, 68, 552, 0));
  CHECK_FALSE(path.handle_too_big(kB, 1279, 1500, 0));
  CHECK_FALSE(path.handle_too_big(kB, 0, 1500, 0));
  CHECK(path.mtu(kB, 0) == 1500);
  CHECK(path.handle_too_big(kB, 1280, 1500, 0));
  CHECK(path.mtu(kB, 0) == 1280);
  // A link with a smaller MTU than that minimum.
  PathMtu narrow({.link_mtu = 300});
  CHECK(narrow.mtu(kA, 0) == 300);
  CHECK_FALSE(narrow.handle_too_big(kA, 100, 300, 0));
}

TEST_CASE("path MTU: a router that states no MTU: the next plateau (RFC 1191)") {
  PathMtu path({.link_mtu = 9000});
  uint32_t size = 9000;
  for (const uint32_t expected : {8166, 4352, 2002, 1492, 1006, 552}) {
    REQUIRE(path.handle_too_big(kA, 0, size, 0));
    CHECK(path.mtu(kA, 0) == expected);
    size = expected;
  }
  CHECK_FALSE(path.handle_too_big(kA, 0, size, 0));
}

TEST_CASE("many addresses: the table does not grow, and the newest is there") {
  PathMtu path({.places = 64});
  for (uint32_t i = 0; i < 10'000; ++i) {
    const IpAddress to = ipv4_address(0x0A000000u + i);
    REQUIRE(path.handle_too_big(to, 1400, 1500, i));
    REQUIRE(path.mtu(to, i) == 1400);
  }
  uint32_t known = 0;
  for (uint32_t i = 0; i < 10'000; ++i) known += path.mtu(ipv4_address(0x0A000000u + i), 10'000) == 1400 ? 1 : 0;
  CHECK(known <= 64);
  CHECK(known >= 60);  // sets of four are full
  CHECK(path.counters().evicted == 10'000 - known);
}

}  // namespace unet::ip::path_mtu_test
