// ip_config.h - parses the options of ports with IP; used by the configuration, the programs and Ni.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ni/engine/ip_options.h"
#include "unet/base/result.h"
#include "unet/limits.h"

namespace unet::service {

// "PORT=ADDRESS/PREFIX[,ADDRESS/PREFIX...][,gateway=ADDRESS][,route=NETWORK/PREFIX@GATEWAY...][,dhcp][,slaac][,unprobed]". Errors:
// invalid_argument.
Result<engine::IpInterfaceOptions> parse_ip_port(std::string_view text);
Status add_ip_address(std::string_view text, engine::IpInterfaceOptions& options);  // "10.0.0.1/24"
Status add_ip_gateway(std::string_view text, engine::IpInterfaceOptions& options);
// "NETWORK/PREFIX@GATEWAY"
Status add_ip_route(std::string_view text, engine::IpInterfaceOptions& options);

// Bit p: port p has IP.
uint32_t ports_with_ip(const std::vector<engine::IpInterfaceOptions>& all) noexcept;

// The engine of the port: the one that `port_engines` says, or round robin.
inline uint32_t engine_of_port(uint32_t port, uint32_t engines, const std::vector<uint32_t>& port_engines) noexcept {
  return port < port_engines.size() ? port_engines[port] : port % engines;
}

// Key for generated IPv6 addresses, from /etc/machine-id, so it is the same each time. A machine without that file gets a random one.
HashKey address_key_of_machine() noexcept;

// Checks the ports' options against each other, after each was parsed by itself. Errors: invalid_argument.
Status check_ip_ports(const std::vector<engine::IpInterfaceOptions>& all, size_t ports, uint32_t engines,
                      const std::vector<uint32_t>& port_engines = {});

}  // namespace unet::service
