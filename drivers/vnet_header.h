// vnet_header.h - what stands in front of a frame between Linux and a program that takes segments: struct virtio_net_hdr, made and read;
// used by ports over packet sockets and taps.
//
// It comes from the kernel; yet no offset or length of it is used before it is checked against the frame.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ni/driver.h"

namespace unet::drivers {

// As Linux has it (linux/virtio_net.h), in host order: packet sockets and taps do without version 1's.
struct VnetHeader {
  static constexpr uint8_t kNeedsChecksum = 1, kDataValid = 2;                                // of `flags`
  static constexpr uint8_t kNone = 0, kTcp4 = 1, kTcp6 = 4, kUdp = 5, kEcn = 0x80;            // of `kind`

  uint8_t flags = 0;
  uint8_t kind = kNone;
  uint16_t header_bytes = 0;     // of all headers
  uint16_t segment_size = 0;
  uint16_t checksum_start = 0;   // what it covers, to the end
  uint16_t checksum_offset = 0;  // of its field, from there
};
static_assert(sizeof(VnetHeader) == 10 && std::is_trivially_copyable_v<VnetHeader>);

// For a frame that goes out.
VnetHeader make_vnet_header(const TransmitFrame& frame) noexcept;

// Fills in segment_size and checked of a frame that came with `header` and has been put into `data`, where a checksum that the receiver
// would not look for is filled in. False: the header does not go with the frame.
bool take_vnet_header(const VnetHeader& header, std::byte* data, ReceivedFrame& frame) noexcept;

}  // namespace unet::drivers
