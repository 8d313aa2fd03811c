// host_addresses.h - the addresses of the network interface, and the choice of a packet's source address; used by the stack.
#pragma once

#include <optional>

#include "ipstack/sockets/network.h"

namespace unet::sockets {

class HostAddresses {
 public:
  explicit HostAddresses(Network& network) noexcept : network_(network) {}

  bool is_own(const ip::IpAddress& address) const;
  // Whether the link of this own address is down or gone.
  bool is_cut_off(const ip::IpAddress& from) const;
  // Chooses the source address for a destination. False: no route leads there.
  bool source_for(const ip::IpAddress& to, ip::IpAddress& from) const;
  uint32_t mtu_from(const ip::IpAddress& from) const;  // MTU of that own address's link
  bool is_broadcast(const ip::IpAddress& address) const;
  // IP_MTU of a path inside this host, as Linux's loopback has it.
  static constexpr int64_t own_path_mtu(bool ipv4) noexcept { return ipv4 ? 65'535 : 65'536; }
  std::optional<ip::IpAddress> first_of(bool ipv4) const;

 private:
  Network& network_;
};

}  // namespace unet::sockets
