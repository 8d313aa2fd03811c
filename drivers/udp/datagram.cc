// datagram.cc - parse and emit of datagrams.
#include "drivers/udp/datagram.h"

#include <cstring>

namespace unet::drivers {
namespace {

uint16_t read16(const std::byte* at) noexcept {
  return static_cast<uint16_t>(std::to_integer<uint32_t>(at[0]) << 8 | std::to_integer<uint32_t>(at[1]));
}

void write16(std::byte* at, uint32_t value) noexcept {
  at[0] = static_cast<std::byte>(value >> 8);
  at[1] = static_cast<std::byte>(value);
}

// The UDP header and what follows, of which IP says that it has `length` bytes.
DatagramError parse_udp(const std::byte* udp, uint32_t length, uint64_t pseudo_header, bool ipv4, const DatagramAddress& own,
                        Bytes& payload) noexcept {
  if (length < kUdpBytes) return DatagramError::bad_length;
  if (static_cast<uint16_t>(read16(udp) - own.port) >= own.ports || read16(udp + 2) != own.port) return DatagramError::wrong_port;
  if (read16(udp + 4) != length) return DatagramError::bad_length;
  const bool summed = udp[6] != std::byte{0} || udp[7] != std::byte{0};
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
  if (ip[0] != std::byte{0x45} || checksum_fold(checksum_add(0, ip, kIpv4Bytes)) != 0) return DatagramError::bad_header;
  const uint32_t total = read16(ip + 2);
  if (total < kIpv4Bytes || total > packet.size()) return DatagramError::bad_length;
  if ((read16(ip + 6) & 0xBFFF) != 0) return DatagramError::fragment;
  if (std::memcmp(ip + 16, own.ip.wire(), 4) != 0) return DatagramError::wrong_address;
  if (ip[9] != std::byte{kProtocolUdp}) return DatagramError::not_udp;
  view.from = ipv4_address(ip + 12);
  if (!view.from.is_wire_host(true)) return DatagramError::wrong_address;
  return parse_udp(ip + kIpv4Bytes, total - kIpv4Bytes, checksum_add(0, ip + 12, 8), true, own, view.payload);
}

DatagramError parse_ipv6(Bytes packet, const DatagramAddress& own, DatagramView& view) noexcept {
  if (packet.size() < kIpv6Bytes) return DatagramError::bad_length;
  const std::byte* const ip = packet.data();
  if ((ip[0] & std::byte{0xF0}) != std::byte{0x60}) return DatagramError::bad_header;
  const uint32_t length = read16(ip + 4);
  if (length > packet.size() - kIpv6Bytes) return DatagramError::bad_length;
  if (ip[6] == std::byte{44}) return DatagramError::fragment;
  if (std::memcmp(ip + 24, own.ip.wire(), 16) != 0) return DatagramError::wrong_address;
  if (ip[6] != std::byte{kProtocolUdp}) return DatagramError::not_udp;
  view.from = ipv6_address(ip + 8);
  if (!view.from.is_wire_host(false)) return DatagramError::wrong_address;
  return parse_udp(ip + kIpv6Bytes, length, checksum_add(0, ip + 8, 32), false, own, view.payload);
}

}  // namespace

DatagramError parse_datagram(Bytes frame, const DatagramAddress& own, DatagramView& view) noexcept {
  if (frame.size() < kEthernetBytes) return DatagramError::not_ip;
  const bool ipv4 = own.ip.is_ipv4();
  if (read16(frame.data() + 12) != (ipv4 ? kEtherTypeIpv4 : kEtherTypeIpv6)) return DatagramError::not_ip;
  if (std::memcmp(frame.data(), own.mac.data(), own.mac.size()) != 0) return DatagramError::wrong_address;
  const Bytes packet = frame.subspan(kEthernetBytes);
  return ipv4 ? parse_ipv4(packet, own, view) : parse_ipv6(packet, own, view);
}

DatagramTemplate::DatagramTemplate(const DatagramAddress& from, const IpAddress& to, uint8_t hop_limit) noexcept
    : ipv4_(from.ip.is_ipv4()), port_(from.port) {
  std::byte* const at = bytes_.data();
  std::memcpy(at + 6, from.mac.data(), from.mac.size());
  write16(at + 12, ipv4_ ? kEtherTypeIpv4 : kEtherTypeIpv6);
  std::byte* const ip = at + kEthernetBytes;
  std::byte* const udp = ip + (ipv4_ ? kIpv4Bytes : kIpv6Bytes);
  write16(udp + 2, from.port);  // the other one is each datagram's own
  if (ipv4_) {
    ip[0] = std::byte{0x45};
    write16(ip + 6, ip::Ipv4Header::kDontFragment);  // so its number may be 0 (RFC 6864)
    ip[8] = std::byte{hop_limit};
    ip[9] = std::byte{kProtocolUdp};
    std::memcpy(ip + 12, from.ip.wire(), 4);
    std::memcpy(ip + 16, to.bytes.data() + 12, 4);
    sum_ = checksum_add(0, ip, kIpv4Bytes);
  } else {
    ip[0] = std::byte{0x60};
    ip[6] = std::byte{kProtocolUdp};
    ip[7] = std::byte{hop_limit};
    std::memcpy(ip + 8, from.ip.wire(), 16);
    std::memcpy(ip + 24, to.bytes.data(), 16);  // whatever it maps
    sum_ = checksum_add16(checksum_add(checksum_add(0, ip + 8, 32), udp, 4), kProtocolUdp);
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
    write16(ip + 2, total);
    write16(ip + kIpv4Bytes, port_ + from);
    write16(ip + kIpv4Bytes + 4, udp_length);
    // The frame's crc32c covers the payload: the checksum of UDP stays 0, none.
    const uint16_t checksum = checksum_fold(checksum_add16(sum_, total));
    std::memcpy(ip + 10, &checksum, sizeof checksum);
    return;
  }
  std::memcpy(to, bytes_.data(), kEthernetBytes + kIpv6Bytes + kUdpBytes);
  std::memcpy(to, next_hop.data(), next_hop.size());
  write16(ip + 4, udp_length);
  write16(ip + kIpv6Bytes, port_ + from);
  write16(ip + kIpv6Bytes + 4, udp_length);
  uint64_t sum = checksum_add16(checksum_add16(sum_, udp_length), udp_length);  // of the pseudo header, and of the header
  sum = checksum_add16(sum, static_cast<uint16_t>(port_ + from));
  const std::byte* const payload = to + size_;
  sum = checksum_add(sum, payload, length - external);
  if (external != 0) sum = checksum_add(sum, more, external);  // after headers of an even length
  uint16_t checksum = checksum_fold(sum);
  if (checksum == 0) checksum = 0xFFFF;
  std::memcpy(ip + kIpv6Bytes + 6, &checksum, sizeof checksum);
}

}  // namespace unet::drivers
