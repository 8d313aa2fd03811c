// address.h - an IP address of either version, and what kind of address it is; used by all of ipstack/ and the udp wrapper.
//
// An IPv4 address is kept as IPv6 maps it, ::ffff:a.b.c.d: so one type, one hash and one table do for both.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "unet/base/result.h"

namespace unet::ip {

// Several of these are asked about every packet: so they are here, and look at words instead of bytes.
struct IpAddress {
  std::array<uint8_t, 16> bytes{};

  bool is_ipv4() const noexcept { return word(0) == 0 && half(8) == kMapped; }
  // The 4 or 16 bytes that stand in a header.
  const uint8_t* wire() const noexcept { return is_ipv4() ? bytes.data() + 12 : bytes.data(); }
  size_t wire_size() const noexcept { return is_ipv4() ? 4 : 16; }

  bool is_unspecified() const noexcept;  // 0.0.0.0, ::
  bool is_loopback() const noexcept;     // 127.0.0.0/8 (RFC 1122, 3.2.1.3), ::1
  bool is_multicast() const noexcept {   // 224.0.0.0/4, ff00::/8
    return bytes[0] == 0xff || ((bytes[12] & 0xF0) == 0xE0 && is_ipv4());
  }
  bool is_link_local() const noexcept;   // 169.254.0.0/16 (RFC 3927), fe80::/10
  bool is_limited_broadcast() const noexcept { return half(12) == ~uint32_t{0} && is_ipv4(); }  // 255.255.255.255
  // Whether one host can have it: neither unspecified nor a group's, nor, as IPv6, one that maps an IPv4 address.
  bool is_one_host(bool ipv4) const noexcept;
  // One of those that may stand in a packet of a wire: no loopback address either (RFC 1122, 3.2.1.3; RFC 4291, 2.5.3).
  bool is_wire_host(bool ipv4) const noexcept { return is_one_host(ipv4) && !is_loopback(); }
  bool operator==(const IpAddress& other) const noexcept { return word(0) == other.word(0) && word(8) == other.word(8); }

  // Of `bytes`, from there on, as they lie.
  uint64_t word(size_t at) const noexcept { return load<uint64_t>(at); }
  uint32_t half(size_t at) const noexcept { return load<uint32_t>(at); }

  static constexpr uint32_t kMapped = std::endian::native == std::endian::little ? 0xFFFF0000 : 0x0000FFFF;

 private:
  template <typename Word>
  Word load(size_t at) const noexcept {
    Word value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  }
};
inline IpAddress ipv4_address(const void* four) noexcept {
  IpAddress address;
  std::memcpy(address.bytes.data() + 8, &IpAddress::kMapped, sizeof IpAddress::kMapped);
  std::memcpy(address.bytes.data() + 12, four, 4);
  return address;
}
IpAddress ipv4_address(uint32_t host_order) noexcept;
inline IpAddress ipv6_address(const void* sixteen) noexcept {
  IpAddress address;
  std::memcpy(address.bytes.data(), sixteen, 16);
  return address;
}

// The groups of all hosts and of all routers on a link (RFC 1112, 4; RFC 4291, 2.7.1).
constexpr IpAddress kAllHosts4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 0, 0, 1}};
constexpr IpAddress kAllNodes6{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
constexpr IpAddress kAllRouters6{{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};

// "10.0.0.1" or "fd00::1": any address. Errors: invalid_argument.
Result<IpAddress> parse_address(std::string_view text);
// One that a host has. Errors: invalid_argument.
Result<IpAddress> parse_ip(std::string_view text);
std::string text_of(const IpAddress& address);
// Whether both are of one version, and the first `prefix` bits (of 32 or 128) are the same.
bool same_network(const IpAddress& a, const IpAddress& b, uint32_t prefix) noexcept;
// Where everybody in the address's IPv4 network is reached (RFC 919); none of a network of one or two hosts (RFC 3021) has one.
bool is_directed_broadcast(const IpAddress& address, const IpAddress& own, uint32_t prefix) noexcept;

// For tables: all bits depend on all of the address. Who does not know the seed cannot choose addresses that collide on purpose.
uint64_t hash_of(const IpAddress& address, uint64_t seed) noexcept;

// The group that an IPv6 host with this address joins to be asked for it: ff02::1:ffXX:XXXX (RFC 4291, 2.7.1).
IpAddress solicited_node(const IpAddress& address) noexcept;

}  // namespace unet::ip
