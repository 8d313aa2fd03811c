// ip_message.h - an IP message of a client, read once into private memory and checked; used by IpDatapath and by a fuzz target.
//
// The header that goes out is written anew from checked fields. A client chooses addresses, protocol, hop limit, class, flow label and
// whether the packet may be fragmented. Each is checked or harmless.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ni/engine/endpoint_state.h"
#include "unet/counters.h"
#include "unet/wire/ip.h"

namespace unet::engine {

constexpr uint32_t kIpTransportMax = 60;  // bytes of a TCP header with options

struct IpMessage {
  ip::IpFields fields{};
  uint16_t from_port = 0, to_port = 0;
  uint16_t segment_size = 0;   // 0: one packet
  bool fill_checksum = false;
  bool loop = true;            // to a group: also to members on this NI
  bool tcp = false;
  uint32_t transport_bytes = 0;
  std::array<std::byte, kIpTransportMax> transport{};  // checked header
  uint32_t payload_at = 0;     // in the message
  uint32_t payload = 0;        // bytes behind the transport header
};

// Reads and checks a message in memory that its sender may change meanwhile. Returns a reason to drop it, or nothing.
std::optional<EndpointCounter> read_ip_message(const Pieces& from, IpMessage& message) noexcept;

// Writes the transport header of one segment: sequence number, flags and length for `length` bytes from `offset` on, no checksum. Returns
// its size.
uint32_t segment_header(const IpMessage& message, uint32_t offset, uint32_t length, std::byte* to) noexcept;

// Stores the transport checksum in `header`; `payload` follows the header.
void fill_checksum(const IpMessage& message, std::byte* header, Bytes payload) noexcept;
// Stores the sum of the pseudo header for `length` bytes of payload, from which a port continues (TransmitOffload).
void begin_checksum(const IpMessage& message, std::byte* header, uint32_t length) noexcept;

}  // namespace unet::engine
