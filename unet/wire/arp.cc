// arp.cc - parses and emits ARP.
#include "unet/wire/arp.h"

#include <cstring>

namespace unet::ip {
namespace {

struct ArpPacket {
  be16 hardware, protocol;
  uint8_t hardware_size, protocol_size;
  be16 operation;
  MacAddress sender_mac;
  uint8_t sender[4];
  MacAddress target_mac;
  uint8_t target[4];
};
static_assert(sizeof(ArpPacket) == kArpBytes);

constexpr uint16_t kEthernet = 1;

}  // namespace

bool parse_arp(Bytes packet, Arp& arp) noexcept {
  if (packet.size() < kArpBytes) return false;
  ArpPacket from;
  std::memcpy(&from, packet.data(), sizeof from);
  if (from.hardware != kEthernet || from.protocol != kEtherTypeIpv4 || from.hardware_size != 6 || from.protocol_size != 4) return false;
  const auto operation = ArpOperation{static_cast<uint16_t>(from.operation)};
  if (operation != ArpOperation::request && operation != ArpOperation::reply) return false;
  if (!is_station(from.sender_mac)) return false;
  arp = {.operation = operation, .sender_mac = from.sender_mac, .sender = ipv4_address(from.sender), .target_mac = from.target_mac,
         .target = ipv4_address(from.target)};
  return !arp.sender.is_multicast() && !arp.sender.is_limited_broadcast();
}

void emit_arp(std::byte* to, const Arp& arp) noexcept {
  ArpPacket packet{.hardware = kEthernet, .protocol = kEtherTypeIpv4, .hardware_size = 6, .protocol_size = 4,
                   .operation = static_cast<uint16_t>(arp.operation), .sender_mac = arp.sender_mac, .sender = {},
                   .target_mac = arp.target_mac, .target = {}};
  std::memcpy(packet.sender, arp.sender.bytes.data() + 12, 4);
  std::memcpy(packet.target, arp.target.bytes.data() + 12, 4);
  std::memcpy(to, &packet, sizeof packet);
}

}  // namespace unet::ip
