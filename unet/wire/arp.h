// arp.h - ARP for IPv4 on Ethernet (RFC 826): parse into a checked view, and emit.
//
//   hardware 2 = 1 | protocol 2 = 0x0800 | 6 | 4 | operation 2 | sender: station 6, address 4 | target: station 6, address 4
#pragma once

#include <cstddef>
#include <cstdint>

#include "unet/base/bytes.h"
#include "unet/wire/address.h"
#include "unet/wire/ethernet.h"

namespace unet::ip {

constexpr uint32_t kArpBytes = 28;

enum class ArpOperation : uint16_t { request = 1, reply = 2 };

struct Arp {
  ArpOperation operation{};
  MacAddress sender_mac{};
  IpAddress sender{};      // unspecified: a probe (RFC 5227, 1.1)
  MacAddress target_mac{};
  IpAddress target{};
};

// False if it is not ARP for IPv4 on Ethernet, is truncated, has another operation, or if the sender is not a unicast station and address.
bool parse_arp(Bytes packet, Arp& arp) noexcept;
// Writes kArpBytes.
void emit_arp(std::byte* to, const Arp& arp) noexcept;

}  // namespace unet::ip
