// datagram.h - UDP over IPv4 and IPv6 in an Ethernet frame: the headers, and one checked view; used by the udp wrapper.
//
//   IPv4:  Ethernet 14 | IPv4 20 | UDP 8 | payload        IPv6:  Ethernet 14 | IPv6 40 | UDP 8 | payload
//
// Options, extension headers and fragments are refused: no NI sends them, and this keeps the parser simple.
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

// Why a frame is not a datagram for this NI.
enum class DatagramError : uint8_t {
  none,
  not_ip,          // another Ethernet type, or the other version of IP
  bad_header,      // version, header length (options), header checksum
  bad_length,      // shorter than its headers say, or the lengths disagree
  fragment,
  wrong_address,   // for another station or IP address, or from an address that no single host can have
  not_udp,         // includes ICMP
  wrong_port,
  bad_checksum,    // wrong UDP checksum, or none over IPv6
  count
};

struct DatagramView {
  IpAddress from{};
  Bytes payload{};  // lies inside the frame
};

// The addresses of this NI, which a datagram to it must carry.
struct DatagramAddress {
  MacAddress mac{};
  IpAddress ip{};
  uint16_t port = 0;  // of both sides
  uint16_t ports = 1; // number of source ports of either side, from `port` on
};

// Checks a received frame and fills in `view`. With DatagramError::none, the payload lies inside the frame.
DatagramError parse_datagram(Bytes frame, const DatagramAddress& own, DatagramView& view) noexcept;

// The constant parts of datagrams to one peer.
class DatagramTemplate {
 public:
  DatagramTemplate() = default;
  DatagramTemplate(const DatagramAddress& from, const IpAddress& to, uint8_t hop_limit) noexcept;

  uint32_t size() const noexcept { return size_; }  // bytes of all headers
  // Writes the headers at `to`. The payload of `length` bytes follows them; its last `external` bytes are at `more` instead. `from` is the
  // source port, as an offset from the first one.
  void write(std::byte* to, const MacAddress& next_hop, uint32_t length, const std::byte* more, uint32_t external,
             uint16_t from = 0) const noexcept;

 private:
  std::array<std::byte, 64> bytes_{};
  uint32_t size_ = 0;
  bool ipv4_ = true;
  uint16_t port_ = 0;
  uint64_t sum_ = 0;  // IPv4: sum of the header; IPv6: sum of the pseudo header and the ports; both without lengths
};

}  // namespace unet::drivers
