// datagram.cc - parses and writes datagrams.
#include "drivers/udp/datagram.h"

#include <cstring>

namespace unet::drivers {
namespace {

using ip::Ipv4Header, ip::Ipv6Header, ip::UdpHeader;

void write16(std::byte* at, uint32_t value) noexcept {
  const be16 field(static_cast<uint16_t>(value));
  std::memcpy(at, &field, sizeof field);
}

// Parses the UDP header and payload, which have `length` bytes according to IP.
DatagramError parse_udp(const std::byte* udp, uint32_t length, uint64_t pseudo_header, bool ipv4, const DatagramAddress& own,
                        Bytes& payload) noexcept {
  if (length < kUdpBytes) return DatagramError::bad_length;
  const auto header = read_as<UdpHeader>(udp);
  if (static_cast<uint16_t>(header.from - own.port) >= own.ports || header.to != own.port) return DatagramError::wrong_port;
  if (header.length != length) return DatagramError::bad_length;
  const bool summed = header.checksum != 0;
  if (!summed && !ipv4) return DatagramError::bad_checksum;  // RFC 8200, 8.1
  if (summed) {
    const uint64_t sum = checksum_add16(checksum_add16(pseudo_header, kProtocolUdp), static_cast<uint16_t>(length));
    if (checksum_fold(checksum_add(sum, udp, length)) != 0) return DatagramError::bad_checksum;
  }
  payload = {udp + kUdpBytes, length - kUdpBytes};
  return DatagramError::none;
}

DatagramError parse_ipv4(Bytes packet, const DatagramAddress& own, DatagramView& view) noexcept {
  if (packet.size() < kIpv4Bytes) return DatagramError::bad_length;
  const std::byte* const ip = packet.data();
  const auto header = read_as<Ipv4Header>(ip);
  if (header.version_ihl != 0x45 || checksum_fold(checksum_add(0, ip, kIpv4Bytes)) != 0) return DatagramError::bad_header;
  const uint32_t total = header.total_length;
  if (total < kIpv4Bytes || total > packet.size()) return DatagramError::bad_length;
  if ((header.fragment & ~Ipv4Header::kDontFragment) != 0) return DatagramError::fragment;
  if (std::memcmp(header.to, own.ip.wire(), sizeof header.to) != 0) return DatagramError::wrong_address;
  if (header.protocol != kProtocolUdp) return DatagramError::not_udp;
  view.from = ipv4_address(header.from);
  if (!view.from.is_wire_host(true)) return DatagramError::wrong_address;
  return parse_udp(ip + kIpv4Bytes, total - kIpv4Bytes, checksum_add(0, ip + offsetof(Ipv4Header, from), 8), true, own, view.payload);
}

DatagramError parse_ipv6(Bytes packet, const DatagramAddress& own, DatagramView& view) noexcept {
  if (packet.size() < kIpv6Bytes) return DatagramError::bad_length;
  const std::byte* const ip = packet.data();
  const auto header = read_as<Ipv6Header>(ip);
  if (header.version_class_flow >> 28 != 6) return DatagramError::bad_header;
  const uint32_t length = header.payload_length;
  if (length > packet.size() - kIpv6Bytes) return DatagramError::bad_length;
  if (header.next == ip::Protocol::kIpv6Fragment) return DatagramError::fragment;
  if (std::memcmp(header.to, own.ip.wire(), sizeof header.to) != 0) return DatagramError::wrong_address;
  if (header.next != kProtocolUdp) return DatagramError::not_udp;
  view.from = ipv6_address(header.from);
  if (!view.from.is_wire_host(false)) return DatagramError::wrong_address;
  return parse_udp(ip + kIpv6Bytes, length, checksum_add(0, ip + offsetof(Ipv6Header, from), 32), false, own, view.payload);
}

}  // namespace

DatagramError parse_datagram(Bytes frame, const DatagramAddress& own, DatagramView& view) noexcept {
  if (frame.size() < kEthernetBytes) return DatagramError::not_ip;
  const bool ipv4 = own.ip.is_ipv4();
  const auto header = read_as<EthernetHeader>(frame.data());
  if (header.type != (ipv4 ? kEtherTypeIpv4 : kEtherTypeIpv6)) return DatagramError::not_ip;
  if (header.to != own.mac) return DatagramError::wrong_address;
  const Bytes packet = frame.subspan(kEthernetBytes);
  return ipv4 ? parse_ipv4(packet, own, view) : parse_ipv6(packet, own, view);
}

DatagramTemplate::DatagramTemplate(const DatagramAddress& from, const IpAddress& to, uint8_t hop_limit) noexcept
    : ipv4_(from.ip.is_ipv4()), port_(from.port) {
  std::byte* const at = bytes_.data();
  emit_ethernet(at, {}, from.mac, ipv4_ ? kEtherTypeIpv4 : kEtherTypeIpv6);
  std::byte* const ip = at + kEthernetBytes;
  std::byte* const udp = ip + (ipv4_ ? kIpv4Bytes : kIpv6Bytes);
  write16(udp + offsetof(UdpHeader, to), from.port);  // each datagram has its own source port
  if (ipv4_) {
    Ipv4Header header{.version_ihl = 0x45, .traffic_class = 0, .total_length = 0, .id = 0,
                      .fragment = Ipv4Header::kDontFragment,  // the identification may therefore be 0 (RFC 6864)
                      .hop_limit = hop_limit, .protocol = kProtocolUdp, .checksum = 0, .from = {}, .to = {}};
    std::memcpy(header.from, from.ip.wire(), sizeof header.from);
    std::memcpy(header.to, to.bytes.data() + 12, sizeof header.to);
    std::memcpy(ip, &header, sizeof header);
    sum_ = checksum_add(0, ip, kIpv4Bytes);
  } else {
    Ipv6Header header{.version_class_flow = 6u << 28, .payload_length = 0, .next = kProtocolUdp, .hop_limit = hop_limit,
                      .from = {}, .to = {}};
    std::memcpy(header.from, from.ip.wire(), sizeof header.from);
    std::memcpy(header.to, to.bytes.data(), sizeof header.to);  // all 16 bytes, also of an address that maps an IPv4 one
    std::memcpy(ip, &header, sizeof header);
    sum_ = checksum_add16(checksum_add(checksum_add(0, ip + offsetof(Ipv6Header, from), 32), udp, 4), kProtocolUdp);
  }
  size_ = kEthernetBytes + (ipv4_ ? kIpv4Bytes : kIpv6Bytes) + kUdpBytes;
}

void DatagramTemplate::write(std::byte* to, const MacAddress& next_hop, uint32_t length, const std::byte* more,
                             uint32_t external, uint16_t from) const noexcept {
  const auto udp_length = static_cast<uint16_t>(length + kUdpBytes);
  std::byte* const ip = to + kEthernetBytes;
  if (ipv4_) {
    std::memcpy(to, bytes_.data(), kEthernetBytes + kIpv4Bytes + kUdpBytes);
    std::memcpy(to, next_hop.data(), next_hop.size());
    const auto total = static_cast<uint16_t>(udp_length + kIpv4Bytes);
    write16(ip + offsetof(Ipv4Header, total_length), total);
    write16(ip + kIpv4Bytes + offsetof(UdpHeader, from), port_ + from);
    write16(ip + kIpv4Bytes + offsetof(UdpHeader, length), udp_length);
    // The frame's crc32c covers the payload, so the UDP checksum stays 0, which means none.
    const uint16_t checksum = checksum_fold(checksum_add16(sum_, total));
    std::memcpy(ip + offsetof(Ipv4Header, checksum), &checksum, sizeof checksum);
    return;
  }
  std::memcpy(to, bytes_.data(), kEthernetBytes + kIpv6Bytes + kUdpBytes);
  std::memcpy(to, next_hop.data(), next_hop.size());
  write16(ip + offsetof(Ipv6Header, payload_length), udp_length);
  write16(ip + kIpv6Bytes + offsetof(UdpHeader, from), port_ + from);
  write16(ip + kIpv6Bytes + offsetof(UdpHeader, length), udp_length);
  uint64_t sum = checksum_add16(checksum_add16(sum_, udp_length), udp_length);  // the length counts twice: pseudo header and UDP header
  sum = checksum_add16(sum, static_cast<uint16_t>(port_ + from));
  const std::byte* const payload = to + size_;
  sum = checksum_add(sum, payload, length - external);
  if (external != 0) sum = checksum_add(sum, more, external);  // the headers have an even length
  uint16_t checksum = checksum_fold(sum);
  if (checksum == 0) checksum = 0xFFFF;
  std::memcpy(ip + kIpv6Bytes + offsetof(UdpHeader, checksum), &checksum, sizeof checksum);
}

}  // namespace unet::drivers
