// ip_options.h - IP options of the wires of an NI; set by the configuration, used by the engine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ipstack/ip/host.h"

namespace unet::engine {

// IP on one port. Without addresses and autoconfiguration it has only a link-local address.
struct IpInterfaceOptions {
  uint32_t port = 0;
  std::vector<ip::HostAddress> addresses{};  // at most kIpAddressesMax - 2: link-local and advertised addresses take two places
  std::optional<ip::IpAddress> gateway4{}, gateway6{};
  std::vector<ip::HostRoute> routes{};       // at most kIpRoutesMax
  bool autoconfigure = false;                // IPv6 addresses, a gateway and times from routers
  bool dhcp = false;                         // an IPv4 address, its network and a gateway from a DHCP server
  bool probe = true;                         // detects duplicate addresses before use
  std::optional<HashKey> address_key{};      // key of generated IPv6 addresses (ip::HostOptions)
};

struct IpOptions {
  std::vector<IpInterfaceOptions> ports;  // none: the NI has no IP
  uint64_t seed = 1;                 // for values that peers must not guess
};

}  // namespace unet::engine
