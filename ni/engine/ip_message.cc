// ip_message.cc - checks of an IP message, and headers of its segments.
#include "ni/engine/ip_message.h"

#include <algorithm>
#include <cstring>

#include "unet/base/bytes.h"
#include "unet/base/trust.h"
#include "unet/ip.h"
#include "unet/wire/checksum.h"
#include "unet/wire/ip.h"
#include "unet/wire/tcp.h"
#include "unet/wire/udp.h"

namespace unet::engine {
namespace {

using Reason = std::optional<EndpointCounter>;
constexpr uint32_t kHeadMax = sizeof(IpMessageHeader) + ip::kIpv6Bytes + kIpTransportMax;

using ip::Ipv4Header, ip::Ipv6Header;
constexpr uint16_t kMoreOrOffset = Ipv4Header::kMoreFragments | Ipv4Header::kOffsetMask;

// Copies the first bytes of the pieces.
uint32_t copy_head(const Pieces& from, std::byte* to, uint32_t most) noexcept {
  if (most == kHeadMax && from.pieces[0].size() >= kHeadMax) {  // nearly always, and no call
    std::memcpy(to, from.pieces[0].data(), kHeadMax);
    return kHeadMax;
  }
  uint32_t done = 0;
  for (uint32_t i = 0; i < from.count && done < most; ++i) {
    const auto part = static_cast<uint32_t>(std::min<uint64_t>(most - done, from.pieces[i].size()));
    copy_bytes(to + done, from.pieces[i].data(), part);
    done += part;
  }
  return done;
}

// `length`: of the packet.
bool read_ipv4(const std::byte* head, uint32_t length, ip::IpFields& fields) noexcept {
  const auto header = read_as<Ipv4Header>(head);
  const uint16_t fragment = header.fragment;
  if (!checked(header.version_ihl == 0x45 && header.total_length == length && (fragment & kMoreOrOffset) == 0)) return false;
  fields.from = ip::ipv4_address(header.from);
  fields.to = ip::ipv4_address(header.to);
  fields.protocol = header.protocol;
  fields.hop_limit = header.hop_limit;
  fields.traffic_class = header.traffic_class;
  fields.dont_fragment = (fragment & Ipv4Header::kDontFragment) != 0;
  return true;
}

bool read_ipv6(const std::byte* head, uint32_t length, ip::IpFields& fields) noexcept {
  const auto header = read_as<Ipv6Header>(head);
  const uint32_t first = header.version_class_flow;
  if (!checked(first >> 28 == 6 && uint32_t{header.payload_length} + ip::kIpv6Bytes == length)) return false;
  fields.from = ip::ipv6_address(header.from);
  fields.to = ip::ipv6_address(header.to);
  fields.protocol = header.next;
  fields.hop_limit = header.hop_limit;
  fields.traffic_class = static_cast<uint8_t>(first >> 20);
  fields.flow_label = first & 0xFFFFF;
  // IPv6 has no such bit. The host fragments datagrams; TCP is told the size that fits.
  fields.dont_fragment = fields.protocol == ip::Protocol::kTcp;
  return !fields.from.is_ipv4() && !fields.to.is_ipv4();
}

// `here`: bytes of the transport header and payload that are in `head`.
Reason read_transport(const std::byte* head, uint32_t here, uint32_t length, IpMessage& message) noexcept {
  message.tcp = message.fields.protocol == ip::Protocol::kTcp;
  if (!message.tcp && message.fields.protocol != ip::Protocol::kUdp) return EndpointCounter::bad_ip_protocol;
  uint32_t size = ip::kUdpBytes;
  if (message.tcp) {
    if (length < sizeof(ip::TcpHeader)) return EndpointCounter::bad_ip_transport;
    size = (std::to_integer<uint32_t>(head[12]) >> 4) * 4;
    if (size < sizeof(ip::TcpHeader)) return EndpointCounter::bad_ip_transport;
  }
  if (!checked(size <= length && size <= here && size <= kIpTransportMax)) return EndpointCounter::bad_ip_transport;
  message.from_port = read_as<be16>(head);
  message.to_port = read_as<be16>(head + 2);
  if (message.to_port == 0) return EndpointCounter::bad_ip_transport;
  // The segments of a cut message get their own lengths.
  if (!message.tcp && message.segment_size == 0 && read_as<be16>(head + 4) != length) return EndpointCounter::bad_ip_transport;
  std::memcpy(message.transport.data(), head, size);
  message.transport_bytes = size;
  message.payload = length - size;
  return std::nullopt;
}

}  // namespace

Reason read_ip_message(const Pieces& from, IpMessage& message) noexcept {
  message.fields = {};  // the rest is written below
  std::array<std::byte, kHeadMax> head;
  const uint32_t here = copy_head(from, head.data(), std::min(from.length, kHeadMax));
  if (here < sizeof(IpMessageHeader) + ip::kIpv4Bytes) return EndpointCounter::bad_ip_message;
  const auto own = read_as<IpMessageHeader>(head.data());
  constexpr uint16_t kKnown = IpMessageFlags::kFillChecksum | IpMessageFlags::kNoLoop;
  if (!checked((own.flags & ~kKnown) == 0 && own.reserved == 0)) return EndpointCounter::bad_ip_message;
  message.segment_size = own.segment_size;
  message.fill_checksum = (own.flags & IpMessageFlags::kFillChecksum) != 0 || own.segment_size != 0;
  message.loop = (own.flags & IpMessageFlags::kNoLoop) == 0;

  const std::byte* const packet = head.data() + sizeof own;
  const uint32_t length = from.length - static_cast<uint32_t>(sizeof own);
  const bool ipv4 = std::to_integer<uint8_t>(packet[0]) >> 4 == 4;
  const uint32_t size = ipv4 ? ip::kIpv4Bytes : ip::kIpv6Bytes;
  if (length < size) return EndpointCounter::bad_ip_header;
  const bool good = ipv4 ? read_ipv4(packet, length, message.fields) : read_ipv6(packet, length, message.fields);
  if (!good) return EndpointCounter::bad_ip_header;
  const uint32_t in_front = static_cast<uint32_t>(sizeof own) + size;
  if (const Reason reason = read_transport(packet + size, here - in_front, length - size, message)) return reason;
  message.payload_at = in_front + message.transport_bytes;
  if (message.segment_size == 0) return std::nullopt;
  if (message.payload > uint32_t{message.segment_size} * kIpSegmentsMax) return EndpointCounter::bad_ip_message;
  return std::nullopt;
}

uint32_t segment_header(const IpMessage& message, uint32_t offset, uint32_t length, std::byte* to) noexcept {
  std::memcpy(to, message.transport.data(), message.transport_bytes);
  if (message.segment_size == 0) return message.transport_bytes;
  if (!message.tcp) {
    const be16 said(static_cast<uint16_t>(ip::kUdpBytes + length));
    std::memcpy(to + offsetof(ip::UdpHeader, length), &said, sizeof said);
    return message.transport_bytes;
  }
  auto header = read_as<ip::TcpHeader>(to);
  header.sequence = header.sequence + offset;
  if (offset + length != message.payload) header.flags &= static_cast<uint8_t>(~(ip::TcpFlags::kFin | ip::TcpFlags::kPsh));
  if (offset != 0) header.flags &= static_cast<uint8_t>(~ip::TcpFlags::kCwr);  // RFC 3168, 6.1.2: said once
  std::memcpy(to, &header, sizeof header);
  return message.transport_bytes;
}

void fill_checksum(const IpMessage& message, std::byte* header, Bytes payload) noexcept {
  const uint32_t at = message.tcp ? offsetof(ip::TcpHeader, checksum) : offsetof(ip::UdpHeader, checksum);
  constexpr uint16_t kNone = 0;
  std::memcpy(header + at, &kNone, sizeof kNone);
  const auto length = static_cast<uint32_t>(message.transport_bytes + payload.size());
  uint64_t sum = ip::pseudo_header_sum(message.fields.from, message.fields.to, message.fields.protocol, length);
  sum = ip::checksum_add(ip::checksum_add(sum, header, message.transport_bytes), payload);
  uint16_t field = ip::checksum_fold(sum);
  if (!message.tcp && field == 0) field = 0xFFFF;  // 0 means no checksum
  std::memcpy(header + at, &field, sizeof field);
}

void begin_checksum(const IpMessage& message, std::byte* header, uint32_t length) noexcept {
  const uint32_t at = message.tcp ? offsetof(ip::TcpHeader, checksum) : offsetof(ip::UdpHeader, checksum);
  const ip::IpFields& fields = message.fields;
  const uint64_t sum = ip::pseudo_header_sum(fields.from, fields.to, fields.protocol, message.transport_bytes + length);
  const auto field = static_cast<uint16_t>(~ip::checksum_fold(sum));
  std::memcpy(header + at, &field, sizeof field);
}

}  // namespace unet::engine
