// ip_message.h - the head of a message of the IP channel; used by the stack.
#pragma once

#include <cstring>

#include "unet/base/bytes.h"
#include "unet/ip.h"
#include "unet/wire/ip.h"

namespace unet::sockets {

// Writes the message's header and the IP header, and returns where the packet's payload of `length` bytes goes.
inline std::byte* begin_message(MutableBytes room, const ip::IpFields& fields, uint32_t length, uint16_t segment,
                                uint16_t flags = 0) noexcept {
  const IpMessageHeader header{.flags = static_cast<uint16_t>(IpMessageFlags::kFillChecksum | flags), .segment_size = segment};
  std::memcpy(room.data(), &header, sizeof header);
  return room.data() + sizeof header + emit_ip_header(room.data() + sizeof header, fields, length);
}

}  // namespace unet::sockets
