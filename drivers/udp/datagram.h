// datagram.h - UDP over IPv4 and IPv6 as it stands in an Ethernet frame: headers, one checked view; used by the udp wrapper.
//
//   IPv4:  Ethernet 14 | IPv4 20 | UDP 8 | payload        IPv6:  Ethernet 14 | IPv6 40 | UDP 8 | payload
//
// Options, extension headers and fragments are refused: no NI sends them, and what is not parsed cannot be parsed wrongly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ni/driver.h"
#include "unet/base/bytes.h"
#include "unet/wire/address.h"
#include "unet/wire/checksum.h"
#include "unet/wire/ethernet.h"
#include "unet/wire/frame.h"
#include "unet/wire/udp.h"

namespace unet::drivers {

using ip::kIpv4Bytes;
using ip::kIpv6Bytes;
using ip::kUdpBytes;
constexpr uint8_t kProtocolUdp = ip::Protocol::kUdp;
constexpr uint8_t kProtocolIcmp6 = ip::Protocol::kIcmp6;

using ip::IpAddress;
using ip::checksum_add;
using ip::checksum_add16;
using ip::checksum_fold;
using ip::ipv4_address;
using ip::ipv6_address;
using ip::parse_ip;
using ip::same_network;
using ip::text_of;

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
