// vnet_header.cc - makes and reads the virtio header of frames to and from Linux.
#include "drivers/vnet_header.h"

#include <cstring>

#include "unet/wire/checksum.h"
#include "unet/wire/ethernet.h"
#include "unet/wire/ip.h"
#include "unet/wire/tcp.h"
#include "unet/wire/udp.h"

namespace unet::drivers {
namespace {

constexpr uint16_t kTcpChecksum = offsetof(ip::TcpHeader, checksum), kUdpChecksum = offsetof(ip::UdpHeader, checksum);

uint8_t byte_at(const std::byte* data, uint32_t at) noexcept { return std::to_integer<uint8_t>(data[at]); }

struct TransportPlace {
  uint32_t at = 0;  // 0: no transport header at its usual place
  uint8_t protocol = 0;
  bool ipv4 = false;
};

// Finds the transport header of a packet without extension headers.
TransportPlace transport_of(const std::byte* data, uint32_t length) noexcept {
  if (length < kEthernetBytes + ip::kIpv4Bytes) return {};
  be16 type;
  std::memcpy(&type, data + kEthernetBytes - sizeof type, sizeof type);
  if (type == kEtherTypeIpv4) {
    return {kEthernetBytes + (byte_at(data, kEthernetBytes) & 15) * 4u, byte_at(data, kEthernetBytes + 9), true};
  }
  if (type != kEtherTypeIpv6) return {};
  return {kEthernetBytes + ip::kIpv6Bytes, byte_at(data, kEthernetBytes + 6), false};
}

}  // namespace

VnetHeader make_vnet_header(const TransmitFrame& frame) noexcept {
  using Transport = TransmitOffload::Transport;
  const TransmitOffload& offload = frame.offload;
  if (offload.transport == Transport::none) return {};
  const bool tcp = offload.transport == Transport::tcp;
  VnetHeader header{.flags = VnetHeader::kNeedsChecksum, .checksum_start = offload.transport_at,
                    .checksum_offset = tcp ? kTcpChecksum : kUdpChecksum};
  if (offload.segment_size == 0) return header;
  header.segment_size = offload.segment_size;
  header.header_bytes = static_cast<uint16_t>(frame.length);
  if (!tcp) {
    header.kind = VnetHeader::kUdp;
    return header;
  }
  const bool ipv4 = byte_at(frame.data, kEthernetBytes) >> 4 == 4;
  const bool cwr = (byte_at(frame.data, offload.transport_at + offsetof(ip::TcpHeader, flags)) & ip::TcpFlags::kCwr) != 0;
  header.kind = static_cast<uint8_t>((ipv4 ? VnetHeader::kTcp4 : VnetHeader::kTcp6) | (cwr ? VnetHeader::kEcn : 0));
  return header;
}

bool take_vnet_header(const VnetHeader& header, std::byte* data, ReceivedFrame& frame) noexcept {
  const TransportPlace transport = transport_of(data, frame.length);
  const bool tcp = transport.protocol == ip::Protocol::kTcp, udp = transport.protocol == ip::Protocol::kUdp;
  frame.checked = (header.flags & VnetHeader::kDataValid) != 0;
  frame.segment_size = 0;
  if ((header.flags & VnetHeader::kNeedsChecksum) != 0) {
    const uint32_t start = header.checksum_start, field = start + header.checksum_offset;
    if (start < kEthernetBytes || field + sizeof(uint16_t) > frame.length) return false;
    frame.checked = start == transport.at && ((tcp && header.checksum_offset == kTcpChecksum) ||
                                              (udp && header.checksum_offset == kUdpChecksum));
    if (!frame.checked && header.kind != VnetHeader::kNone) return false;
    if (!frame.checked) {  // tunnelled packets and other protocols
      uint16_t sum = ip::checksum_fold(ip::checksum_add(0, data + start, frame.length - start));
      if (sum == 0) sum = 0xFFFF;  // an equal sum: for UDP 0 would mean that there is no checksum
      std::memcpy(data + field, &sum, sizeof sum);
    }
  }
  const uint8_t kind = header.kind & static_cast<uint8_t>(~VnetHeader::kEcn);
  if (kind == VnetHeader::kNone) return true;
  const bool known = (kind == VnetHeader::kTcp4 && tcp && transport.ipv4) || (kind == VnetHeader::kTcp6 && tcp && !transport.ipv4) ||
                     (kind == VnetHeader::kUdp && udp);
  if (!known || !frame.checked || header.segment_size == 0) return false;
  frame.segment_size = header.segment_size;
  return true;
}

}  // namespace unet::drivers
