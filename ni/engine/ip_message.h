// ip_message.h - an IP message of a client's, read once into private memory and checked; used by Ip, and by a fuzz target.
//
// Of the packet's IP header only what it says is kept: what goes out is written anew. So a client decides about addresses, protocol, hop
// limit, class, flow label and whether it may be cut, each of which is checked or harmless, and about nothing else.
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
  uint16_t segment_size = 0;   // 0: it is one packet
  bool fill_checksum = false;
  bool loop = true;            // to a group: also to those of this NI
  bool tcp = false;
  uint32_t transport_bytes = 0;
  std::array<std::byte, kIpTransportMax> transport{};  // its header, as it was checked
  uint32_t payload_at = 0;     // in the message
  uint32_t payload = 0;        // bytes behind the transport header
};

// Reads and checks a message that lies in memory which its sender may change meanwhile. A reason to drop it, or nothing.
std::optional<EndpointCounter> read_ip_message(const Pieces& from, IpMessage& message) noexcept;

// The transport header of `length` bytes of payload from `offset` on, of a message that is cut: sequence number, flags and length, and no
// checksum. Returns its size.
uint32_t segment_header(const IpMessage& message, uint32_t offset, uint32_t length, std::byte* to) noexcept;

// Puts the checksum of a packet's transport into `header`, of `header_bytes`, which `payload` follows.
void fill_checksum(const IpMessage& message, std::byte* header, Bytes payload) noexcept;
// What a port goes on with (TransmitOffload): the sum of the pseudo header of `length` bytes of payload.
void begin_checksum(const IpMessage& message, std::byte* header, uint32_t length) noexcept;

}  // namespace unet::engine
