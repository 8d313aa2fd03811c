// udp_spec.cc - parses the udp wrapper's addresses in a routed IP network.
#include "apps/udp_spec.h"

#include <algorithm>
#include <optional>
#include <string>

#include "apps/spec_values.h"
#include "drivers/udp/udp.h"
#include "unet/wire/ethernet.h"

namespace unet::apps {
namespace {

using drivers::UdpOptions;

// Calls `take` with each part of "a+b+c" until one fails.
template <typename Take>
Status for_each_part(const std::string& text, Take take) {
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('+', start), text.size());
    if (Status status = take(text.substr(start, end - start)); !status) return status;
    start = end + 1;
  }
  return {};
}

Status set_address(const std::string& text, UdpOptions& o) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) {
    return fail(Errc::invalid_argument, "address: '" + text + "' has no prefix; write it like 10.0.1.2/24 or fd00:1::2/64");
  }
  if (Status status = assign("address", drivers::parse_ip(text.substr(0, slash)), o.address); !status) return status;
  return assign("address", parse_count(text.substr(slash + 1), 1, o.address.is_ipv4() ? 32 : 128), o.prefix);
}

Status add_neighbour(const std::string& text, UdpOptions& o) {
  const size_t at = text.find('@');
  const std::optional<MacAddress> mac = at == std::string::npos ? std::nullopt : parse_mac(std::string_view(text).substr(at + 1));
  drivers::StaticNeighbour neighbour;
  if (Status status = assign("neighbour", drivers::parse_ip(text.substr(0, at)), neighbour.ip); !status) return status;
  if (!mac || (mac->front() & 1) != 0) {
    return fail(Errc::invalid_argument, "neighbour: '" + text + "' is not IP@MAC, like 10.0.1.1@02:00:00:00:00:01");
  }
  neighbour.mac = *mac;
  o.neighbours.push_back(neighbour);
  return {};
}

Status set_udp(const std::string& name, const std::string& value, UdpOptions& o) {
  if (name == "address") return set_address(value, o);
  if (name == "gateway") {
    drivers::IpAddress gateway;
    if (Status status = assign(name, drivers::parse_ip(value), gateway); !status) return status;
    o.gateway = gateway;
    return {};
  }
  if (name == "peers") {
    return for_each_part(value, [&](const std::string& part) -> Status {
      o.peers.emplace_back();
      return assign("peers", drivers::parse_ip(part), o.peers.back());
    });
  }
  if (name == "neighbour") return for_each_part(value, [&](const std::string& part) { return add_neighbour(part, o); });
  if (name == "port") return assign(name, parse_count(value, 1, 65535), o.port);
  if (name == "ports") return assign(name, parse_count(value, 1, drivers::kUdpPortsMax), o.ports);
  if (name == "mtu") return assign(name, parse_count(value, 576, 9600), o.mtu);
  if (name == "hops") return assign(name, parse_count(value, 1, 255), o.hop_limit);
  return fail(Errc::invalid_argument, "'" + name + "' is not an option; allowed: address gateway peers neighbour port ports mtu hops");
}

}  // namespace

Result<Wrapper> parse_udp(std::string_view text) {
  UdpOptions options;
  for (const auto& [name, value] : split_options(text)) {
    if (Status status = set_udp(name, value, options); !status) return fail(Errc::invalid_argument, "udp: " + status.error().text);
  }
  if (options.prefix == 0) {
    return fail(Errc::invalid_argument, "udp: needs an address: udp:address=10.0.1.2/24,gateway=10.0.1.1,peers=10.0.2.2 / dpdk:...");
  }
  return [options](std::unique_ptr<Driver> wire) { return drivers::Udp::wrap(std::move(wire), options); };
}

}  // namespace unet::apps
