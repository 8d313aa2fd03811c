// ip_config.cc - parsing and checking of options of ports with IP.
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string>

#include "ni/service/ip_config.h"
#include "ni/service/names.h"
#include "unet/wire/address.h"

namespace unet::service {
namespace {

constexpr size_t kStaticMax = kIpAddressesMax - 2;  // leaves room for a link-local address and one of a router's prefix

tl::unexpected<Error> wrong(const std::string& text) { return fail(Errc::invalid_argument, text); }

// "ADDRESS/PREFIX"; the address of a host, or what `parse` takes.
Result<ip::HostAddress> parse_network(std::string_view text, Result<ip::IpAddress> (*parse)(std::string_view) = &ip::parse_ip) {
  const size_t slash = text.find('/');
  const Result<ip::IpAddress> address = parse(text.substr(0, slash));
  if (!address) return tl::unexpected(address.error());
  uint32_t prefix = 0;
  const std::string_view bits = slash == std::string_view::npos ? std::string_view() : text.substr(slash + 1);
  const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), prefix);
  const uint32_t most = address->is_ipv4() ? 32 : 128;
  if (bits.empty() || error != std::errc() || end != bits.data() + bits.size() || prefix == 0 || prefix > most) {
    return wrong("write ADDRESS/PREFIX, a prefix of 1 to " + std::to_string(most) + " bits");
  }
  return ip::HostAddress{*address, static_cast<uint8_t>(prefix)};
}

bool has_bits_behind(const ip::IpAddress& network, uint32_t prefix) noexcept {
  for (uint32_t bit = prefix; bit < 8 * network.wire_size(); ++bit) {
    if ((network.wire()[bit / 8] >> (7 - bit % 8) & 1) != 0) return true;
  }
  return false;
}

}  // namespace

Status add_ip_address(std::string_view text, engine::IpInterfaceOptions& options) {
  const Result<ip::HostAddress> whole = parse_network(text);
  if (!whole) return wrong(in_quotes(text) + ": " + whole.error().text);
  for (const ip::HostAddress& each : options.addresses) {
    if (each.address == whole->address) return wrong(in_quotes(text) + " is there twice");
  }
  if (options.addresses.size() == kStaticMax) return wrong("a port has at most " + std::to_string(kStaticMax) + " addresses");
  options.addresses.push_back(*whole);
  return {};
}

Status add_ip_gateway(std::string_view text, engine::IpInterfaceOptions& options) {
  const Result<ip::IpAddress> address = ip::parse_ip(text);
  if (!address) return wrong("gateway " + in_quotes(text) + ": " + address.error().text);
  if (address->is_loopback()) return wrong("gateway " + in_quotes(text) + ": no wire has that address");
  std::optional<ip::IpAddress>& gateway = address->is_ipv4() ? options.gateway4 : options.gateway6;
  if (gateway) return wrong("gateway " + in_quotes(text) + ": there is one of that family already");
  gateway = *address;
  return {};
}

Status add_ip_route(std::string_view text, engine::IpInterfaceOptions& options) {
  const auto bad = [&](const std::string& why) { return wrong("route " + in_quotes(text) + ": " + why); };
  const size_t at = text.find('@');
  if (at == std::string_view::npos) return bad("write NETWORK/PREFIX@GATEWAY");
  const Result<ip::HostAddress> network = parse_network(text.substr(0, at), &ip::parse_address);
  if (!network) return bad(network.error().text);
  const Result<ip::IpAddress> gateway = ip::parse_ip(text.substr(at + 1));
  if (!gateway) return bad("its gateway: " + gateway.error().text);
  const ip::HostRoute route{network->address, network->prefix, *gateway};
  if (gateway->is_ipv4() != route.network.is_ipv4()) return bad("its gateway is of the other family");
  if (gateway->is_loopback() || route.network.is_loopback() || route.network.is_multicast()) return bad("no wire has that address");
  if (has_bits_behind(route.network, route.prefix)) return bad("the network has bits behind its prefix");
  for (const ip::HostRoute& each : options.routes) {
    if (each.network == route.network && each.prefix == route.prefix) return bad("there is one to that network already");
  }
  if (options.routes.size() == kIpRoutesMax) return bad("a port has at most " + std::to_string(kIpRoutesMax) + " routes");
  options.routes.push_back(route);
  return {};
}

Result<engine::IpInterfaceOptions> parse_ip_port(std::string_view text) {
  const std::string whole(text);
  const auto form = [&](const std::string& why) {
    return fail(Errc::invalid_argument, "ip " + in_quotes(whole) + ": " + why +
                                            "; write PORT=ADDRESS/PREFIX[,...][,gateway=ADDRESS][,route=NETWORK/PREFIX@GATEWAY...]"
                                            "[,dhcp][,slaac][,unprobed]");
  };
  engine::IpInterfaceOptions options;
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return form("it names no port");
  const auto [end, error] = std::from_chars(text.data(), text.data() + equals, options.port);
  if (error != std::errc() || end != text.data() + equals || options.port >= kPortsMax) return form("no port has that number");
  text.remove_prefix(equals + 1);
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    constexpr std::string_view kGateway = "gateway=", kRoute = "route=";
    Status status;
    if (item == "slaac") options.autoconfigure = true;
    else if (item == "dhcp") options.dhcp = true;
    else if (item == "unprobed") options.probe = false;
    else if (item.substr(0, kGateway.size()) == kGateway) status = add_ip_gateway(item.substr(kGateway.size()), options);
    else if (item.substr(0, kRoute.size()) == kRoute) status = add_ip_route(item.substr(kRoute.size()), options);
    else status = add_ip_address(item, options);
    if (!status) return form(status.error().text);
    if (comma == std::string_view::npos) return options;
    text.remove_prefix(comma + 1);
  }
}

uint32_t ports_with_ip(const std::vector<engine::IpInterfaceOptions>& all) noexcept {
  uint32_t mask = 0;
  for (const engine::IpInterfaceOptions& each : all) mask |= 1u << each.port;
  return mask;
}

Status check_ip_ports(const std::vector<engine::IpInterfaceOptions>& all, size_t ports, uint32_t engines,
                      const std::vector<uint32_t>& port_engines) {
  for (size_t i = 0; i < all.size(); ++i) {
    const engine::IpInterfaceOptions& each = all[i];
    if (each.port >= ports) {
      return wrong("ip: port " + std::to_string(each.port) + " does not exist; " + std::to_string(ports) +
                   " are configured (the first is 0)");
    }
    for (size_t j = 0; j < i; ++j) {
      if (all[j].port == each.port) return wrong("ip: port " + std::to_string(each.port) + " is there twice");
      for (const ip::HostAddress& one : each.addresses) {
        for (const ip::HostAddress& other : all[j].addresses) {
          if (one.address == other.address) return wrong("ip: two ports have the address " + ip::text_of(one.address));
        }
      }
    }
  }
  for (const engine::IpInterfaceOptions& each : all) {
    for (const ip::HostRoute& route : each.routes) {
      const auto is_it = [&](const ip::HostAddress& one) { return one.address == route.gateway; };
      const auto is_near = [&](const ip::HostAddress& one) { return ip::same_network(one.address, route.gateway, one.prefix); };
      const bool near = each.dhcp || each.autoconfigure || route.gateway.is_link_local() ||
                        std::any_of(each.addresses.begin(), each.addresses.end(), is_near);
      if (near && std::none_of(each.addresses.begin(), each.addresses.end(), is_it)) continue;
      return wrong("ip: port " + std::to_string(each.port) + ": the gateway " + ip::text_of(route.gateway) + " of a route is no other " +
                   "host of its networks");
    }
    const uint32_t engine = engine_of_port(each.port, engines, port_engines);
    if (engine == 0) continue;
    return wrong("ip: port " + std::to_string(each.port) + " is one of engine " + std::to_string(engine) +
                 ", and engine 0 has IP: give it port 0, or that one to engine 0 (port_engines)");
  }
  return {};
}

// The machine's number itself must stay secret (machine-id(5)).
HashKey address_key_of_machine() noexcept {
  constexpr size_t kDigits = 16;  // hexadecimal digits of each half
  HashKey machine;
  std::string text;
  std::getline(std::ifstream("/etc/machine-id"), text);
  const auto read_half = [&](size_t at, uint64_t& half) {
    const char* const begin = text.data() + at;
    return std::from_chars(begin, begin + kDigits, half, 16).ptr == begin + kDigits;
  };
  if (text.size() == 2 * kDigits && read_half(0, machine.first) && read_half(kDigits, machine.second)) {
    return {keyed_hash(machine, std::array<uint64_t, 1>{1}), keyed_hash(machine, std::array<uint64_t, 1>{2})};
  }
  static_cast<void>(!::getrandom(&machine, sizeof machine, 0));
  return machine;
}

}  // namespace unet::service
