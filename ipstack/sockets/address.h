// address.h - where a socket is: an IP address and a port; used by all of ipstack/sockets.
#pragma once

#include <cstdint>
#include <string>

#include "unet/wire/address.h"

namespace unet::sockets {

struct Address {
  ip::IpAddress host{};  // unspecified: any, or none
  uint16_t port = 0;     // 0: any, or none

  bool operator==(const Address&) const = default;
};

// "10.0.0.1:80", "[fd00::1]:80".
inline std::string text_of(const Address& address) {
  const std::string host = ip::text_of(address.host);
  return (address.host.is_ipv4() ? host : "[" + host + "]") + ":" + std::to_string(address.port);
}

}  // namespace unet::sockets
