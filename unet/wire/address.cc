// address.cc - classification of IP addresses, and their text form.
#include "unet/wire/address.h"

#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <cstring>

namespace unet::ip {
namespace {

bool starts_with_zeros(const IpAddress& address, size_t count) noexcept {
  return std::all_of(address.bytes.begin(), address.bytes.begin() + static_cast<std::ptrdiff_t>(count), [](uint8_t b) { return b == 0; });
}

}  // namespace

bool IpAddress::is_unspecified() const noexcept {
  if (is_ipv4()) return bytes[12] == 0 && bytes[13] == 0 && bytes[14] == 0 && bytes[15] == 0;
  return starts_with_zeros(*this, 16);
}

bool IpAddress::is_loopback() const noexcept {
  if (is_ipv4()) return bytes[12] == 127;
  return starts_with_zeros(*this, 15) && bytes[15] == 1;
}

bool IpAddress::is_link_local() const noexcept {
  if (is_ipv4()) return bytes[12] == 169 && bytes[13] == 254;
  return bytes[0] == 0xfe && (bytes[1] & 0xC0) == 0x80;
}

bool IpAddress::is_one_host(bool ipv4) const noexcept {
  if (ipv4) return is_ipv4() && bytes[12] != 0 && bytes[12] < 224;
  return (bytes[0] != 0 && bytes[0] != 0xff) || (is_loopback() && !is_ipv4());  // an IPv4-mapped address begins with 0
}

IpAddress ipv4_address(uint32_t host_order) noexcept {
  const uint32_t wire = htonl(host_order);
  return ipv4_address(&wire);
}

Result<IpAddress> parse_address(std::string_view text) {
  const std::string whole(text);
  std::array<uint8_t, 16> bytes{};
  if (inet_pton(AF_INET, whole.c_str(), bytes.data()) == 1) return ipv4_address(bytes.data());
  if (inet_pton(AF_INET6, whole.c_str(), bytes.data()) == 1) return ipv6_address(bytes.data());
  return fail(Errc::invalid_argument, "'" + whole + "' is no IP address; write it like 10.0.1.2 or fd00:1::2");
}

Result<IpAddress> parse_ip(std::string_view text) {
  Result<IpAddress> address = parse_address(text);
  // An IPv4-mapped address in IPv6 text is not a host's address.
  if (address && !address->is_one_host(text.find(':') == std::string_view::npos)) {
    return fail(Errc::invalid_argument, "'" + std::string(text) + "' is not the address of one host");
  }
  return address;
}

std::string text_of(const IpAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(address.is_ipv4() ? AF_INET : AF_INET6, address.wire(), text.data(), text.size());
  return text.data();
}

bool same_network(const IpAddress& a, const IpAddress& b, uint32_t prefix) noexcept {
  if (a.is_ipv4() != b.is_ipv4()) return false;
  const uint32_t bits = std::min(prefix + (a.is_ipv4() ? 96 : 0), 128u);
  const uint64_t high = be64toh(a.word(0) ^ b.word(0)), low = be64toh(a.word(8) ^ b.word(8));
  if (bits <= 64) return bits == 0 || high >> (64 - bits) == 0;
  return high == 0 && low >> (128 - bits) == 0;
}

bool is_directed_broadcast(const IpAddress& address, const IpAddress& own, uint32_t prefix) noexcept {
  if (!address.is_ipv4() || !own.is_ipv4() || prefix > 30 || !same_network(address, own, prefix)) return false;
  uint32_t value;
  std::memcpy(&value, address.wire(), 4);
  const uint32_t host = static_cast<uint32_t>((uint64_t{1} << (32 - prefix)) - 1);
  return (ntohl(value) & host) == host;
}

uint64_t hash_of(const IpAddress& address, uint64_t seed) noexcept {
  // The finalizer of MurmurHash3 (Appleby, 2011), after each half.
  const auto mix = [](uint64_t value) {
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCDu;
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53u;
    return value ^ value >> 33;
  };
  uint64_t low, high;
  std::memcpy(&low, address.bytes.data(), 8);
  std::memcpy(&high, address.bytes.data() + 8, 8);
  return mix(mix(low ^ seed) + high);
}

IpAddress solicited_node(const IpAddress& address) noexcept {
  IpAddress group;
  group.bytes = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xff, address.bytes[13], address.bytes[14], address.bytes[15]};
  return group;
}

}  // namespace unet::ip
