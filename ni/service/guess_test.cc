// guess_test.cc - what a client is given tells nothing of what the next one gets: tags of wire channels and chosen ports.
#include <catch2/catch.hpp>

#include <bitset>
#include <set>

#include "ni/service/ip_ports.h"
#include "ni/service/tags.h"
#include "unet/wire/ip.h"

namespace unet::service::guess_test {
namespace {

// The length of the shortest linear feedback shift register that gives these bits (Berlekamp and Massey): about half of their number, if
// they are random. Xorshift and the Mersenne twister have registers of 64 and 19,937 bits, and twice as many outputs tell all.
template <size_t kBits, typename Next>
size_t linear_complexity(Next next) {
  std::bitset<kBits> connection(1), before(1), window;
  size_t length = 0, since = 1;
  for (size_t i = 0; i < kBits; ++i) {
    window <<= 1;
    window[0] = next();
    if ((connection & window).count() % 2 == 0) {
      ++since;
      continue;
    }
    const std::bitset<kBits> old = connection;
    connection ^= before << since;
    ++since;
    if (2 * length > i) continue;
    length = i + 1 - length;
    before = old;
    since = 1;
  }
  return length;
}

uint16_t chosen(IpPorts& ports, uint16_t count = 1) {
  const auto claimed = ports.claim(1, 100, {.protocol = ip::Protocol::kTcp, .ports = count}, Rights::everything());
  REQUIRE(claimed);
  ports.release(claimed->claim);
  return claimed->port;
}

}  // namespace

TEST_CASE("ports that a client is given do not tell those of others") {
  const uint64_t seed = GENERATE(0, 1);
  IpPorts ports(seed);
  CHECK(linear_complexity<512>([&] { return chosen(ports) % 2 != 0; }) > 200);
  IpPorts others(seed);
  std::set<uint16_t> different;
  for (int i = 0; i < 100; ++i) different.insert(chosen(others));
  CHECK(different.size() > 90);
  CHECK(*different.rbegin() > 64'000);
  CHECK(*different.begin() < 51'000);
}

TEST_CASE("tags that a client is given do not tell those of others") {
  TagTable tags(GENERATE(0, 1));
  const auto next = [&] {
    const Tag tag = tags.allocate().value();
    tags.release(tag);
    return (static_cast<uint32_t>(tag) >> 16) % 2 != 0;
  };
  CHECK(linear_complexity<40'960>(next) > 20'300);
}

TEST_CASE("there are plenty of ports until a quarter is claimed, of either protocol") {
  IpPorts ports(1);
  const Rights all = Rights::everything();
  std::vector<IpClaimed> claims;
  const auto claim = [&](uint8_t protocol) {
    return claims.emplace_back(ports.claim(1, 100, {.protocol = protocol, .ports = 64}, all).value());
  };
  for (int i = 0; i < 128; ++i) CHECK(claim(ip::Protocol::kTcp).plenty);
  CHECK(!claim(ip::Protocol::kTcp).plenty);
  CHECK(claim(ip::Protocol::kUdp).plenty);
  for (const IpClaimed& each : claims) ports.release(each.claim);
  CHECK(claim(ip::Protocol::kTcp).plenty);
}

}  // namespace unet::service::guess_test
