// udp.cc - parses and emits UDP.
#include "unet/wire/udp.h"

#include <array>
#include <cstring>

#include "unet/wire/checksum.h"

namespace unet::ip {

const char* name_of(UdpError error) noexcept {
  constexpr std::array<const char*, static_cast<size_t>(UdpError::count)> kNames{"none",     "truncated",    "bad_length",
                                                                                  "bad_port", "bad_checksum", "no_checksum"};
  return kNames[static_cast<size_t>(error)];
}

UdpError parse_udp(const IpView& packet, bool summed, UdpView& view) noexcept {
  const Bytes bytes = packet.payload;
  if (bytes.size() < kUdpBytes) return UdpError::truncated;
  UdpHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const uint16_t length = header.length;
  if (length < kUdpBytes || length > bytes.size()) return UdpError::bad_length;
  if (header.checksum == 0) {
    if (!packet.ipv4 && !summed) return UdpError::no_checksum;
  } else if (!summed) {
    const uint64_t sum = pseudo_header_sum(packet.from, packet.to, Protocol::kUdp, length);
    if (checksum_fold(checksum_add(sum, bytes.data(), length)) != 0) return UdpError::bad_checksum;
  }
  if (header.to == 0) return UdpError::bad_port;
  view = {.from = header.from, .to = header.to, .payload = bytes.subspan(kUdpBytes, length - kUdpBytes)};
  return UdpError::none;
}

void emit_udp_header(std::byte* to, const IpAddress& from, const IpAddress& peer, uint16_t from_port, uint16_t to_port,
                     Bytes payload) noexcept {
  const auto length = static_cast<uint16_t>(kUdpBytes + payload.size());
  UdpHeader header{.from = from_port, .to = to_port, .length = length, .checksum = 0};
  uint64_t sum = pseudo_header_sum(from, peer, Protocol::kUdp, length);
  sum = checksum_add(checksum_add(sum, &header, sizeof header), payload);
  header.checksum = checksum_fold(sum);
  if (header.checksum == 0) header.checksum = 0xFFFF;  // 0 would mean no checksum
  std::memcpy(to, &header, sizeof header);
}

}  // namespace unet::ip
