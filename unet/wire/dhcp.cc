// dhcp.cc - parses and emits DHCP.
#include "unet/wire/dhcp.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace unet::ip {
namespace {

struct DhcpHeader {
  uint8_t op, hardware, hardware_size, hops;
  be32 transaction;
  be16 seconds, flags;
  uint8_t client[4], yours[4], server[4], relay[4];
  MacAddress station;
  uint8_t rest_of_station[10];
  uint8_t name[64], file[128];
  be32 cookie;
};
static_assert(sizeof(DhcpHeader) == 240);
static_assert(offsetof(DhcpHeader, station) == 28 && offsetof(DhcpHeader, cookie) == 236);

constexpr uint8_t kRequest = 1, kReply = 2, kEthernetHardware = 1;  // op, hardware
constexpr uint16_t kBroadcastFlag = 0x8000;
constexpr uint32_t kCookie = 0x63825363;

struct Option {
  static constexpr uint8_t kPad = 0, kMask = 1, kRouters = 3, kNameServers = 6, kMtu = 26, kRequested = 50, kLease = 51, kOverload = 52,
                           kKind = 53, kServer = 54, kWanted = 55, kSizeMax = 57, kRenew = 58, kRebind = 59, kClientId = 61, kEnd = 255;
};
constexpr uint8_t kInFile = 1, kInName = 2;  // values of kOverload

uint32_t number(Bytes value) noexcept {
  be32 wire;
  std::memcpy(&wire, value.data(), sizeof wire);
  return wire;
}

// Parser state beside the reply.
struct Read {
  DhcpReply& reply;
  uint32_t options = 0;
  uint8_t kind = 0, overload = 0;
  bool has_mask = false, has_server = false;
};

bool take_mask(Bytes value, Read& read) noexcept {
  const uint32_t mask = number(value);
  if (std::countl_one(mask) != std::popcount(mask)) return false;  // not a contiguous mask
  read.reply.prefix = static_cast<uint8_t>(std::popcount(mask));
  return read.has_mask = true;
}

bool take_addresses(uint8_t code, Bytes value, Read& read) noexcept {
  if (value.empty() || value.size() % 4 != 0) return false;
  for (; !value.empty(); value = value.subspan(4)) {
    const IpAddress address = ipv4_address(value.data());
    if (!address.is_wire_host(true)) continue;
    DhcpReply& reply = read.reply;
    if (code == Option::kRouters && !reply.router) reply.router = address;
    if (code == Option::kNameServers && reply.name_server_count < kNameServersMax) reply.name_servers[reply.name_server_count++] = address;
  }
  return true;
}

// False: a known option has an invalid length or value.
bool take_option(uint8_t code, Bytes value, Read& read) noexcept {
  DhcpReply& reply = read.reply;
  const auto seconds = [&](uint32_t& to) {
    if (value.size() != 4) return false;
    if (to == 0) to = number(value);
    return true;
  };
  switch (code) {
    case Option::kKind:
      if (value.size() != 1) return false;
      if (read.kind == 0) read.kind = std::to_integer<uint8_t>(value[0]);
      return true;
    case Option::kOverload:
      if (value.size() != 1) return false;
      if (read.overload == 0) read.overload = std::to_integer<uint8_t>(value[0]);
      return true;
    case Option::kServer:
      if (value.size() != 4) return false;
      if (!read.has_server) reply.server = ipv4_address(value.data());
      return read.has_server = true;
    case Option::kMask: return value.size() == 4 && (read.has_mask || take_mask(value, read));
    case Option::kRouters: case Option::kNameServers: return take_addresses(code, value, read);
    case Option::kMtu:
      if (value.size() != 2) return false;
      if (reply.mtu == 0) reply.mtu = static_cast<uint16_t>(std::to_integer<uint32_t>(value[0]) << 8 | std::to_integer<uint32_t>(value[1]));
      return true;
    case Option::kLease: return seconds(reply.lease_s);
    case Option::kRenew: return seconds(reply.renew_s);
    case Option::kRebind: return seconds(reply.rebind_s);
    case Option::kClientId:
      if (reply.client_id.empty()) reply.client_id = value;
      return true;
    default: return true;
  }
}

bool parse_options(Bytes options, Read& read) noexcept {
  for (size_t at = 0; at < options.size();) {
    const auto code = std::to_integer<uint8_t>(options[at++]);
    if (code == Option::kPad) continue;
    if (code == Option::kEnd) return true;
    if (at == options.size() || ++read.options > kDhcpOptionsMax) return false;
    const auto length = std::to_integer<size_t>(options[at++]);
    if (length > options.size() - at || !take_option(code, options.subspan(at, length), read)) return false;
    at += length;
  }
  return true;
}

// The classful prefix length, for a server that states no mask (RFC 791, 3.2).
uint8_t prefix_of_class(const IpAddress& address) noexcept {
  const uint8_t first = address.bytes[12];
  return first < 128 ? 8 : first < 192 ? 16 : 24;
}

}  // namespace

std::array<uint8_t, kDhcpClientIdBytes> dhcp_client_id(const MacAddress& own) noexcept {
  constexpr uint8_t kOfDuid = 255, kByLinkLayer = 3;
  // Any interface number is valid, as long as it is stable.
  return {kOfDuid, own[2], own[3], own[4], own[5], 0, kByLinkLayer, 0, kEthernetHardware, own[0], own[1], own[2], own[3], own[4], own[5]};
}

bool parse_dhcp(Bytes message, DhcpReply& reply) noexcept {
  if (message.size() < sizeof(DhcpHeader)) return false;
  DhcpHeader header;
  std::memcpy(&header, message.data(), sizeof header);
  if (header.op != kReply || header.hardware != kEthernetHardware || header.hardware_size != 6 || header.cookie != kCookie) return false;
  reply = {};
  reply.transaction = header.transaction;
  reply.station = header.station;
  reply.address = ipv4_address(header.yours);
  Read read{.reply = reply};
  if (!parse_options(message.subspan(sizeof header), read)) return false;
  // RFC 2131, 4.1: first `file`, then `name`.
  if ((read.overload & kInFile) != 0 && !parse_options(message.subspan(offsetof(DhcpHeader, file), sizeof header.file), read)) return false;
  if ((read.overload & kInName) != 0 && !parse_options(message.subspan(offsetof(DhcpHeader, name), sizeof header.name), read)) return false;
  reply.kind = DhcpKind{read.kind};
  if (!read.has_server || !reply.server.is_wire_host(true)) return false;  // RFC 2131, 4.3.1, table 3
  if (reply.kind == DhcpKind::nak) return true;
  if (reply.kind != DhcpKind::offer && reply.kind != DhcpKind::ack) return false;
  if (!reply.address.is_wire_host(true) || reply.lease_s == 0) return false;
  if (!read.has_mask) reply.prefix = prefix_of_class(reply.address);
  return reply.prefix != 0 && !is_directed_broadcast(reply.address, reply.address, reply.prefix);
}

void emit_dhcp(std::byte* to, const DhcpFields& fields) noexcept {
  DhcpHeader header{};
  header.op = kRequest;
  header.hardware = kEthernetHardware;
  header.hardware_size = 6;
  header.transaction = fields.transaction;
  header.seconds = fields.seconds;
  header.flags = fields.broadcast ? kBroadcastFlag : 0;
  std::memcpy(header.client, fields.client.wire(), 4);
  header.station = fields.station;
  header.cookie = kCookie;
  std::memset(to, 0, kDhcpClientBytes);
  std::memcpy(to, &header, sizeof header);
  std::byte* at = to + sizeof header;
  const auto append = [&](uint8_t code, const void* value, uint8_t length) {
    *at++ = std::byte{code};
    *at++ = std::byte{length};
    std::memcpy(at, value, length);
    at += length;
  };
  const auto kind = static_cast<uint8_t>(fields.kind);
  append(Option::kKind, &kind, 1);
  const auto id = dhcp_client_id(fields.station);
  append(Option::kClientId, id.data(), static_cast<uint8_t>(id.size()));
  if (!fields.requested.is_unspecified()) append(Option::kRequested, fields.requested.wire(), 4);
  if (!fields.server.is_unspecified()) append(Option::kServer, fields.server.wire(), 4);
  if (fields.kind != DhcpKind::decline) {  // RFC 2131, 4.4.1, table 5
    constexpr std::array<uint8_t, 7> kWanted{Option::kMask,  Option::kRouters, Option::kNameServers, Option::kMtu,
                                             Option::kLease, Option::kRenew,   Option::kRebind};
    append(Option::kWanted, kWanted.data(), static_cast<uint8_t>(kWanted.size()));
    const be16 size_max(fields.size_max);
    append(Option::kSizeMax, &size_max, 2);
  }
  *at = std::byte{Option::kEnd};
  // Maximum length: 240 + 3 + 17 + 6 + 6 + 9 + 4 + 1.
  static_assert(sizeof(DhcpHeader) + 3 + 2 + kDhcpClientIdBytes + 6 + 6 + 9 + 4 + 1 <= kDhcpClientBytes);
}

}  // namespace unet::ip
