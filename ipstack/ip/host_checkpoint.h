// host_checkpoint.h - a host's addresses, prefixes and router, for its next instance on the same link; written and read by Host.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "unet/base/time.h"
#include "unet/wire/address.h"

namespace unet::ip {

// Times are seconds that remain.
struct HostCheckpoint {
  static constexpr uint32_t kAddressesMax = 16, kPrefixesMax = 16;
  static constexpr uint32_t kForever = ~uint32_t{0};

  // Assigned addresses only. Tentative and conflicting ones are claimed anew, and the DHCP lease is separate (LeaseCheckpoint).
  struct Address {
    IpAddress address{};
    uint8_t prefix = 0;
    bool of_router = false;  // generated from a prefix; else configured
    uint32_t valid_s = kForever, preferred_s = kForever;
    bool operator==(const Address&) const noexcept = default;
  };
  // An on-link prefix by router advertisement.
  struct Prefix {
    IpAddress prefix{};
    uint8_t bits = 0;
    uint32_t valid_s = kForever;
    bool operator==(const Prefix&) const noexcept = default;
  };
  uint32_t address_count = 0, prefix_count = 0;
  std::array<Address, kAddressesMax> addresses{};
  std::array<Prefix, kPrefixesMax> prefixes{};
  IpAddress router{};          // default router by router advertisement; unspecified: none
  uint32_t router_s = 0;
  uint32_t mtu6 = 0;
  uint8_t hop_limit6 = 0;
  bool operator==(const HostCheckpoint&) const noexcept = default;

  static uint32_t seconds_left(Nanoseconds until, Nanoseconds now) noexcept {
    if (until == kNever) return kForever;
    return static_cast<uint32_t>(std::min<Nanoseconds>((until - std::min(until, now)) / kSecond, kForever - 1));
  }
  static Nanoseconds time_of(uint32_t seconds, Nanoseconds now) noexcept { return seconds == kForever ? kNever : now + seconds * kSecond; }
};

}  // namespace unet::ip
