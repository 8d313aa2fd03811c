// vnet_header.h - the header before each frame that Linux exchanges with a program that takes segments, struct virtio_net_hdr; used by
// ports over packet sockets and taps.
//
// Although it comes from the kernel, its offsets and lengths are checked against the frame before use.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ni/driver.h"

namespace unet::drivers {

// The layout of linux/virtio_net.h, in host order: packet sockets and taps do not use the fields of version 1.
struct VnetHeader {
  static constexpr uint8_t kNeedsChecksum = 1, kDataValid = 2;                                // values of `flags`
  static constexpr uint8_t kNone = 0, kTcp4 = 1, kTcp6 = 4, kUdp = 5, kEcn = 0x80;            // values of `kind`

  uint8_t flags = 0;
  uint8_t kind = kNone;
  uint16_t header_bytes = 0;     // bytes of all headers
  uint16_t segment_size = 0;
  uint16_t checksum_start = 0;   // the checksum covers the bytes from here to the end
  uint16_t checksum_offset = 0;  // offset of the checksum's field from checksum_start
};
static_assert(sizeof(VnetHeader) == 10 && std::is_trivially_copyable_v<VnetHeader>);

// Makes the header of a frame to send.
VnetHeader make_vnet_header(const TransmitFrame& frame) noexcept;

// Fills in segment_size and checked of a received frame. Completes a checksum in `data` that the receiver would not look for. Returns false
// if the header does not match the frame.
bool take_vnet_header(const VnetHeader& header, std::byte* data, ReceivedFrame& frame) noexcept;

}  // namespace unet::drivers
