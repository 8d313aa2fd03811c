// host_kept.h - what a host has of its addresses, for the one that goes on with it on the same link; made and taken by Host.
#pragma once

#include <array>
#include <cstdint>

#include "unet/wire/address.h"

namespace unet::ip {

// Times are seconds from then on.
struct HostKept {
  static constexpr uint32_t kAddressesMax = 16, kPrefixesMax = 16;
  static constexpr uint32_t kForever = ~uint32_t{0};

  // That nobody else has: not the tentative ones and those in conflict, which are asked for anew, and not what a server leases (DhcpKept).
  struct Address {
    IpAddress address{};
    uint8_t prefix = 0;
    bool of_router = false;  // made of a prefix; else it was configured
    uint32_t valid_s = kForever, preferred_s = kForever;
    bool operator==(const Address&) const noexcept = default;
  };
  // On the link, as routers say.
  struct Prefix {
    IpAddress prefix{};
    uint8_t bits = 0;
    uint32_t valid_s = kForever;
    bool operator==(const Prefix&) const noexcept = default;
  };
  uint32_t address_count = 0, prefix_count = 0;
  std::array<Address, kAddressesMax> addresses{};
  std::array<Prefix, kPrefixesMax> prefixes{};
  IpAddress router{};          // the default one, if routers say who that is; unspecified: none
  uint32_t router_s = 0;
  uint32_t mtu6 = 0;
  uint8_t hop_limit6 = 0;
  bool operator==(const HostKept&) const noexcept = default;
};

}  // namespace unet::ip
