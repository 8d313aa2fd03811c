// address.h - an IP address of either version, and its classification; used by every layer.
//
// An IPv4 address is stored as the IPv4-mapped ::ffff:a.b.c.d, so that one type, one hash and one table serve both versions.
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

// Several of these tests run for every packet: they are inline, and read words instead of bytes.
struct IpAddress {
  std::array<uint8_t, 16> bytes{};

  bool is_ipv4() const noexcept { return word(0) == 0 && half(8) == kMapped; }
  // The 4 or 16 bytes of the address in a header.
  const uint8_t* wire() const noexcept { return is_ipv4() ? bytes.data() + 12 : bytes.data(); }
  size_t wire_size() const noexcept { return is_ipv4() ? 4 : 16; }

  bool is_unspecified() const noexcept;  // 0.0.0.0, ::
  bool is_loopback() const noexcept;     // 127.0.0.0/8 (RFC 1122, 3.2.1.3), ::1
  bool is_multicast() const noexcept {   // 224.0.0.0/4, ff00::/8
    return bytes[0] == 0xff || ((bytes[12] & 0xF0) == 0xE0 && is_ipv4());
  }
  bool is_link_local() const noexcept;   // 169.254.0.0/16 (RFC 3927), fe80::/10
  bool is_limited_broadcast() const noexcept { return half(12) == ~uint32_t{0} && is_ipv4(); }  // 255.255.255.255
  // True if one host can have it: not unspecified, not a group, and not an IPv4-mapped address in IPv6.
  bool is_one_host(bool ipv4) const noexcept;
  // True if it may appear in a packet on the link: one host's, and not loopback (RFC 1122, 3.2.1.3; RFC 4291, 2.5.3).
  bool is_wire_host(bool ipv4) const noexcept { return is_one_host(ipv4) && !is_loopback(); }
  bool operator==(const IpAddress& other) const noexcept { return word(0) == other.word(0) && word(8) == other.word(8); }

  // Loads `bytes` from offset `at`, in memory order.
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

// Parses "10.0.0.1" or "fd00::1": any address. Errors: invalid_argument.
Result<IpAddress> parse_address(std::string_view text);
// Parses the address of one host. Errors: invalid_argument.
Result<IpAddress> parse_ip(std::string_view text);
std::string text_of(const IpAddress& address);
// True if both have one version, and agree in the first `prefix` bits (of 32 or 128).
bool same_network(const IpAddress& a, const IpAddress& b, uint32_t prefix) noexcept;
// True for the directed broadcast address of the IPv4 network of `own` (RFC 919). A network of one or two hosts has none (RFC 3021).
bool is_directed_broadcast(const IpAddress& address, const IpAddress& own, uint32_t prefix) noexcept;

// Hash for tables: every output bit depends on the whole address. Without the seed, an attacker cannot construct collisions.
uint64_t hash_of(const IpAddress& address, uint64_t seed) noexcept;

// The solicited-node group of an IPv6 address: ff02::1:ffXX:XXXX (RFC 4291, 2.7.1).
IpAddress solicited_node(const IpAddress& address) noexcept;

}  // namespace unet::ip
