// sockaddr_test.cc - addresses of all forms, also the unusual ones that programs pass.
#include "ipstack/sockets/sockaddr.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>

namespace unet::sockets::sockaddr_test {
namespace {

sockaddr_storage four_of(uint32_t host, uint16_t port) {
  sockaddr_storage made{};
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(host);
  four.sin_port = htons(port);
  std::memcpy(&made, &four, sizeof four);
  return made;
}

sockaddr_storage six_of(const char* host, uint16_t port) {
  sockaddr_storage made{};
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  ::inet_pton(AF_INET6, host, &six.sin6_addr);
  six.sin6_port = htons(port);
  std::memcpy(&made, &six, sizeof six);
  return made;
}

const sockaddr* any(const sockaddr_storage& address) { return reinterpret_cast<const sockaddr*>(&address); }

}  // namespace

TEST_CASE("addresses are those of the socket's family, long enough and not too long") {
  const sockaddr_storage four = four_of(0x0A000001, 80), six = six_of("fd00::1", 81);
  Address is;
  CHECK(read_sockaddr(any(four), sizeof(sockaddr_in), false, false, is) == 0);
  CHECK(is == Address{ip::ipv4_address(0x0A000001), 80});
  CHECK(read_sockaddr(any(four), sizeof four, false, false, is) == 0);
  CHECK(read_sockaddr(any(four), sizeof(sockaddr_in) - 1, false, false, is) == -EINVAL);
  CHECK(read_sockaddr(any(four), sizeof four + 1, false, false, is) == -EINVAL);
  CHECK(read_sockaddr(any(six), sizeof(sockaddr_in6), false, false, is) == -EAFNOSUPPORT);
  CHECK(read_sockaddr(any(six), sizeof(sockaddr_in6), true, false, is) == 0);
  CHECK(text_of(is) == "[fd00::1]:81");
  CHECK(read_sockaddr(any(six), 24, true, false, is) == 0);
  CHECK(read_sockaddr(any(six), 23, true, false, is) == -EINVAL);
}

TEST_CASE("a socket of IPv6 takes IPv4's addresses where it may") {
  const sockaddr_storage four = four_of(0x0A000001, 80);
  Address is;
  CHECK(read_sockaddr(any(four), sizeof(sockaddr_in), true, true, is) == 0);
  CHECK(read_sockaddr(any(four), sizeof(sockaddr_in), true, false, is) == -EINVAL);
  CHECK(read_sockaddr(any(four), sizeof four, true, false, is) == -EAFNOSUPPORT);
}

TEST_CASE("all addresses, none, and those of nowhere") {
  const sockaddr_storage all = four_of(0, 80), none{};
  Address is{ip::ipv4_address(1u), 1};
  CHECK(read_sockaddr(any(all), sizeof(sockaddr_in), false, false, is) == 0);
  CHECK(is == Address{{}, 80});
  for (const bool six : {false, true}) CHECK(read_sockaddr(any(none), sizeof none, six, true, is) == -EAFNOSUPPORT);
  CHECK(read_sockaddr(nullptr, sizeof none, false, false, is) == -EFAULT);
  CHECK(read_sockaddr(reinterpret_cast<const sockaddr*>(8), sizeof none, false, false, is) == -EFAULT);
  CHECK(read_sockaddr(nullptr, 1, false, false, is) == -EINVAL);
}

TEST_CASE("as much of an address is written as there is room for, and how much there is") {
  sockaddr_storage into;
  for (const bool six : {false, true}) {
    const Address from{six ? ip::ipv6_address(&in6addr_loopback) : ip::ipv4_address(0x0A000001), 80};
    const socklen_t whole = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::memset(&into, 0x55, sizeof into);
    socklen_t length = 4;
    write_sockaddr(from, six, reinterpret_cast<sockaddr*>(&into), &length);
    CHECK(length == whole);
    CHECK(reinterpret_cast<const unsigned char*>(&into)[4] == 0x55);
    length = sizeof into;
    write_sockaddr(from, six, reinterpret_cast<sockaddr*>(&into), &length);
    Address is;
    CHECK(read_sockaddr(any(into), length, six, false, is) == 0);
    CHECK(is == from);
  }
}

}  // namespace unet::sockets::sockaddr_test
