// ip_options.h - which wires of an NI have IP, and how; set by the configuration, used by the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ipstack/ip/host.h"

namespace unet::engine {

// How one port has IP; IP without addresses and without autoconfiguration has only its link-local address.
struct IpInterfaceOptions {
  uint32_t port = 0;
  std::vector<ip::HostAddress> addresses{};  // at most kIpAddressesMax - 2: there is a link-local one, and one of a router's prefix
  std::optional<ip::IpAddress> gateway4{}, gateway6{};
  std::vector<ip::HostRoute> routes{};       // at most kIpRoutesMax
  bool autoconfigure = false;                // IPv6 addresses, a gateway and times from routers
  bool dhcp = false;                         // an IPv4 address, its network and a gateway from a DHCP server
  bool probe = true;                         // asks whether another host has an address before it is used
  std::optional<HashKey> address_key{};      // of the IPv6 addresses that the host makes (ip::HostOptions)
};

struct IpOptions {
  std::vector<IpInterfaceOptions> ports;  // none: the NI has no IP
  uint64_t seed = 1;                 // of what others shall not guess
};

}  // namespace unet::engine
