// udp.h - the UDP header (RFC 768): parse into a checked view, and emit.
//
//   from port 2 | to port 2 | length 2 | checksum 2 | payload
#pragma once

#include <cstddef>
#include <cstdint>

#include "unet/base/bytes.h"
#include "unet/wire/ip.h"

namespace unet::ip {

constexpr uint32_t kUdpBytes = 8;

struct UdpHeader {
  be16 from, to;
  be16 length;
  uint16_t checksum;  // result of checksum_fold(); 0: none (IPv4 only)
};
static_assert(sizeof(UdpHeader) == kUdpBytes);

enum class UdpError : uint8_t {
  none,
  truncated,
  bad_length,    // below the header's size, or beyond the IP payload
  bad_port,      // destination port 0
  bad_checksum,
  no_checksum,   // forbidden over IPv6 (RFC 8200, 8.1)
  count
};
const char* name_of(UdpError error) noexcept;

struct UdpView {
  uint16_t from = 0, to = 0;  // ports
  Bytes payload{};
};

// Parses the payload of a whole packet. `summed`: the driver has verified the checksum, or the packet never left the host.
UdpError parse_udp(const IpView& packet, bool summed, UdpView& view) noexcept;

// Writes the header, with checksum, of a datagram with `payload`: at most 65,527 bytes, over IPv4 65,507.
void emit_udp_header(std::byte* to, const IpAddress& from, const IpAddress& peer, uint16_t from_port, uint16_t to_port,
                     Bytes payload) noexcept;

}  // namespace unet::ip
