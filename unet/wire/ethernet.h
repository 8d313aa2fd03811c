// ethernet.h - Ethernet: addresses and their text, a frame's header, and the stations of IP addresses; used by every layer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "unet/base/bytes.h"
#include "unet/wire/address.h"

namespace unet {

using MacAddress = std::array<uint8_t, 6>;

constexpr MacAddress kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

// An address that a station can have: not a group's, and not zero.
constexpr bool is_station(const MacAddress& address) noexcept { return (address[0] & 1) == 0 && address != MacAddress{}; }

// "02:00:00:00:00:01", with a terminator.
std::array<char, 18> mac_text(const MacAddress& address) noexcept;
// Reads that form; nothing if the text has another.
std::optional<MacAddress> parse_mac(std::string_view text) noexcept;

struct EthernetHeader {
  MacAddress to;
  MacAddress from;
  be16 type;
};
constexpr uint32_t kEthernetBytes = 14;
static_assert(sizeof(EthernetHeader) == kEthernetBytes);

constexpr uint16_t kEtherTypeIpv4 = 0x0800;
constexpr uint16_t kEtherTypeArp = 0x0806;
constexpr uint16_t kEtherTypeIpv6 = 0x86DD;

// Writes the header of a frame and returns its size.
inline uint32_t emit_ethernet(std::byte* frame, const MacAddress& to, const MacAddress& from, be16 type) noexcept {
  std::memcpy(frame, to.data(), sizeof to);
  std::memcpy(frame + offsetof(EthernetHeader, from), from.data(), sizeof from);
  std::memcpy(frame + offsetof(EthernetHeader, type), &type, sizeof type);
  return kEthernetBytes;
}

}  // namespace unet

namespace unet::ip {

// The station for frames to an IP group: 01:00:5e and 23 bits (RFC 1112, 6.4), or 33:33 and 32 bits (RFC 2464, 7).
inline MacAddress group_station(const IpAddress& group) noexcept {
  const std::array<uint8_t, 16>& b = group.bytes;
  if (group.is_ipv4()) return {0x01, 0x00, 0x5e, static_cast<uint8_t>(b[13] & 0x7f), b[14], b[15]};
  return {0x33, 0x33, b[12], b[13], b[14], b[15]};
}

// The link-local address of a station: fe80:: and the modified EUI-64 (RFC 2464, 5).
inline IpAddress link_local(const MacAddress& mac) noexcept {
  IpAddress address;
  address.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, static_cast<uint8_t>(mac[0] ^ 2), mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  return address;
}

}  // namespace unet::ip
