// udp.h - the header of a UDP datagram (RFC 768) as a checked view, and how one is written; used by ipstack/.
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
  uint16_t checksum;  // as checksum_fold() makes it; 0: none (IPv4 alone)
};
static_assert(sizeof(UdpHeader) == kUdpBytes);

enum class UdpError : uint8_t {
  none,
  truncated,
  bad_length,    // shorter than the header, or longer than IP says
  bad_port,      // to port 0
  bad_checksum,
  no_checksum,   // over IPv6 (RFC 8200, 8.1)
  count
};
const char* name_of(UdpError error) noexcept;

struct UdpView {
  uint16_t from = 0, to = 0;  // ports
  Bytes payload{};
};

// Checks the payload of a whole packet. `summed`: the wire has verified that it has the right checksum, or there was no wire.
UdpError parse_udp(const IpView& packet, bool summed, UdpView& view) noexcept;

// Writes the header of a datagram whose payload follows it, with its checksum. The payload has at most 65,527 bytes, over IPv4 65,507.
void emit_udp_header(std::byte* to, const IpAddress& from, const IpAddress& peer, uint16_t from_port, uint16_t to_port,
                     Bytes payload) noexcept;

}  // namespace unet::ip
