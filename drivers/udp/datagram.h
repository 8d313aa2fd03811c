// datagram.h - UDP over IPv4 and IPv6 as it stands in an Ethernet frame: addresses, headers, checksum, one checked view; used by the
// udp wrapper.
//
//   IPv4:  Ethernet 14 | IPv4 20 | UDP 8 | payload        IPv6:  Ethernet 14 | IPv6 40 | UDP 8 | payload
//
// Options, extension headers and fragments are refused: no NI sends them, and what is not parsed cannot be parsed wrongly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "unet/base/bytes.h"
#include "unet/base/result.h"
#include "unet/driver.h"
#include "unet/wire.h"

namespace unet::drivers {

constexpr uint16_t kEtherTypeIpv4 = 0x0800;
constexpr uint16_t kEtherTypeIpv6 = 0x86DD;
constexpr uint8_t kProtocolUdp = 17;
constexpr uint8_t kProtocolIcmp6 = 58;
constexpr uint32_t kIpv4Bytes = 20;
constexpr uint32_t kIpv6Bytes = 40;
constexpr uint32_t kUdpBytes = 8;

// An IPv4 address is kept as IPv6 maps it, ::ffff:a.b.c.d.
struct IpAddress {
  std::array<uint8_t, 16> bytes{};

  bool is_ipv4() const noexcept;
  // The 4 or 16 bytes that stand in a header.
  const uint8_t* wire() const noexcept { return is_ipv4() ? bytes.data() + 12 : bytes.data(); }
  size_t wire_size() const noexcept { return is_ipv4() ? 4 : 16; }
  // Whether one host can have it: neither unspecified nor a group's, nor, as IPv6, one that maps an IPv4 address.
  bool is_one_host(bool ipv4) const noexcept;
  bool operator==(const IpAddress&) const = default;
};
IpAddress ipv4_address(const uint8_t* four) noexcept;
IpAddress ipv6_address(const uint8_t* sixteen) noexcept;

// "10.0.0.1" or "fd00::1": an address that one host has. Errors: invalid_argument.
Result<IpAddress> parse_ip(std::string_view text);
std::string text_of(const IpAddress& address);
// Whether the first `prefix` bits (of 32 or 128) are the same.
bool same_network(const IpAddress& a, const IpAddress& b, uint32_t prefix) noexcept;

// The sum that the Internet checksum (RFC 1071) is made of, of bytes in the order of the wire. A piece starts at an even byte.
uint64_t checksum_add(uint64_t sum, const void* bytes, size_t length) noexcept;
// A 16-bit number as it stands on the wire.
uint64_t checksum_add16(uint64_t sum, uint16_t value) noexcept;
// What goes into the header's field, in the order of the wire.
uint16_t checksum_fold(uint64_t sum) noexcept;

// Why a frame is no datagram for us.
enum class DatagramError : uint8_t {
  none,
  not_ip,          // another Ethernet type, or the other version of IP
  bad_header,      // version, header length (options), header checksum
  bad_length,      // shorter than its headers say, or the lengths disagree
  fragment,
  wrong_address,   // for another station or another IP address, or from none that one host has
  not_udp,         // ICMP among them
  wrong_port,
  bad_checksum,    // of UDP; IPv6 without one
  count
};

struct DatagramView {
  IpAddress from{};
  Bytes payload{};  // in the frame
};

// Who we are: what a datagram for us says.
struct DatagramAddress {
  MacAddress mac{};
  IpAddress ip{};
  uint16_t port = 0;  // of both sides
  uint16_t ports = 1; // from this one on, that either side sends from
};

// Checks a received frame and fills `view`: with DatagramError::none, the payload lies inside the frame.
DatagramError parse_datagram(Bytes frame, const DatagramAddress& own, DatagramView& view) noexcept;

// Everything of a datagram to one peer that stays the same.
class DatagramTemplate {
 public:
  DatagramTemplate() = default;
  DatagramTemplate(const DatagramAddress& from, const IpAddress& to, uint8_t hop_limit) noexcept;

  uint32_t size() const noexcept { return size_; }  // of all headers
  // Writes the headers at `to`; the payload of `length` bytes follows them, the last `external` of which are at `more`. `from` is the
  // port that it is sent from, counted from the first.
  void write(std::byte* to, const MacAddress& next_hop, uint32_t length, const std::byte* more, uint32_t external,
             uint16_t from = 0) const noexcept;

 private:
  std::array<std::byte, 64> bytes_{};
  uint32_t size_ = 0;
  bool ipv4_ = true;
  uint16_t port_ = 0;
  uint64_t sum_ = 0;  // IPv4: of the header; IPv6: of the pseudo header and the ports; both without lengths
};

}  // namespace unet::drivers
