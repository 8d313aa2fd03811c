// ip_hosts.cc - addresses and leases of ports: their status, and their records for the next network interface.
#include "ni/service/ip_hosts.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "ni/service/journal_records.h"
#include "unet/base/bytes.h"
#include "unet/wire/address.h"

namespace unet::service {
// Begins with the configured addresses, until each port's host reports its own. An address that is probed may still be another host's.
IpHosts::IpHosts(const std::vector<engine::IpInterfaceOptions>& options, EngineCommands& commands, Persistence& persistence)
    : options_(options), commands_(commands), persistence_(persistence) {
  for (const engine::IpInterfaceOptions& each : options_) {
    ip::HostStatus& status = status_[each.port];
    for (const ip::HostAddress& address : each.addresses) {
      if (status.count < ip::HostStatus::kAddressesMax) status.addresses[status.count++] = {address.address, address.prefix, each.probe};
    }
    status.gateway4 = each.gateway4.value_or(ip::IpAddress{});
    status.gateway6 = each.gateway6.value_or(ip::IpAddress{});
    status.mtu = UINT32_MAX;  // the host has set no limit yet: the port's MTU counts
  }
}

bool IpHosts::has_address(const ip::IpAddress& address) const {
  for (const auto& [port, status] : status_) {
    for (uint32_t i = 0; i < status.count; ++i) {
      if (status.addresses[i].address == address) return true;
    }
  }
  return false;
}

bool IpHosts::on_changed(const engine::IpChanged& event, const MacAddress& station) {
  const auto at = status_.find(event.port);
  const bool differs = at != status_.end() && at->second != event.status;
  if (differs) at->second = event.status;
  if (event.lease) leases_[event.port] = {.since = monotonic_now(), .station = station, .state = *event.lease};
  if (event.lease || leases_.erase(event.port) != 0) persistence_.changed(JournalKind::ip_lease, event.port);
  return differs;
}

void IpHosts::on_checkpoint(const engine::HostCheckpointed& event, const MacAddress& station) {
  hosts_[event.port] = {.since = monotonic_now(), .station = station, .state = event.checkpoint};
  persistence_.changed(JournalKind::ip_host, event.port);
}

void IpHosts::resume(std::span<const PortInfo> ports) {
  resume_hosts(ports);
  resume_leases(ports);
}

bool IpHosts::write_lease(uint32_t port) {
  const auto at = leases_.find(port);
  if (at == leases_.end()) return false;
  const ip::LeaseCheckpoint& checkpoint = at->second.state;
  auto value = zeroed<IpLeaseValue>();
  value.since = at->second.since;
  value.renew_in = checkpoint.renew_in;
  value.rebind_in = checkpoint.rebind_in;
  value.end_in = checkpoint.end_in;
  const auto put = [](uint8_t* to, const ip::IpAddress& from) { std::memcpy(to, from.bytes.data(), sizeof value.address); };
  put(value.address, checkpoint.lease.address);
  put(value.server, checkpoint.lease.server);
  if (checkpoint.lease.router) put(value.router, *checkpoint.lease.router);
  for (uint32_t i = 0; i < checkpoint.lease.name_server_count; ++i) put(value.name_servers[i], checkpoint.lease.name_servers[i]);
  value.prefix = checkpoint.lease.prefix;
  value.mtu = checkpoint.lease.mtu;
  value.name_server_count = checkpoint.lease.name_server_count;
  value.has_router = checkpoint.lease.router ? 1 : 0;
  value.station = at->second.station;
  persistence_.put(JournalKind::ip_lease, port, 0, value);
  return true;
}

bool IpHosts::resume_lease(uint32_t port, const IpLeaseValue& value) {
  Checkpoint<ip::LeaseCheckpoint> lease{.since = value.since, .station = value.station, .state = {}};
  lease.state.renew_in = value.renew_in;
  lease.state.rebind_in = value.rebind_in;
  lease.state.end_in = value.end_in;
  ip::DhcpLease& of = lease.state.lease;
  of.address = ip::ipv6_address(value.address);
  of.server = ip::ipv6_address(value.server);
  if (value.has_router != 0) of.router = ip::ipv6_address(value.router);
  of.prefix = static_cast<uint8_t>(value.prefix);
  of.mtu = static_cast<uint16_t>(value.mtu);
  of.name_server_count = value.name_server_count;
  const bool good = port < kPortsMax && value.prefix <= 32 && value.mtu <= 0xFFFF && value.has_router <= 1 &&
                    value.name_server_count <= ip::kNameServersMax && of.address.is_wire_host(true) &&
                    of.server.is_wire_host(true) && (!of.router || of.router->is_wire_host(true)) && value.renew_in <= value.rebind_in &&
                    value.rebind_in <= value.end_in;
  if (!good) return false;
  for (uint32_t i = 0; i < value.name_server_count; ++i) of.name_servers[i] = ip::ipv6_address(value.name_servers[i]);
  leases_[port] = lease;
  return true;
}

// A port keeps its address for the rest of the lease. A port without DHCP in the new configuration drops it.
void IpHosts::resume_leases(std::span<const PortInfo> ports) {
  const uint64_t now = monotonic_now();
  for (auto& [port, lease] : std::exchange(leases_, {})) {
    const auto takes = [&, number = port](const engine::IpInterfaceOptions& each) { return each.port == number && each.dhcp; };
    const uint64_t age = now - std::min(now, lease.since);
    const bool wanted = std::any_of(options_.begin(), options_.end(), takes) && ports[port].address == lease.station;
    if (!wanted || lease.state.end_in <= age) {
      persistence_.changed(JournalKind::ip_lease, port);
      continue;
    }
    ip::LeaseCheckpoint checkpoint = lease.state;
    for (Nanoseconds* each : {&checkpoint.renew_in, &checkpoint.rebind_in, &checkpoint.end_in}) {
      if (*each != ~Nanoseconds{0}) *each -= std::min(*each, age);
    }
    leases_[port] = lease;
    commands_.push(0, engine::ResumeLease{.port = port, .lease = checkpoint});
    ip::HostStatus& status = status_[port];
    if (status.count < ip::HostStatus::kAddressesMax) {
      status.addresses[status.count++] = {checkpoint.lease.address, checkpoint.lease.prefix, false};
    }
    if (status.gateway4.is_unspecified()) status.gateway4 = checkpoint.lease.router.value_or(ip::IpAddress{});
  }
}

bool IpHosts::write_host(uint32_t port) {
  const auto at = hosts_.find(port);
  if (at == hosts_.end()) return false;
  const ip::HostCheckpoint& checkpoint = at->second.state;
  auto value = zeroed<IpHostValue>();
  static_assert(std::size(value.addresses) == ip::HostCheckpoint::kAddressesMax &&
                std::size(value.prefixes) == ip::HostCheckpoint::kPrefixesMax);
  value.since = at->second.since;
  value.station = at->second.station;
  value.address_count = checkpoint.address_count;
  for (uint32_t i = 0; i < checkpoint.address_count; ++i) {
    const ip::HostCheckpoint::Address& from = checkpoint.addresses[i];
    IpHostValue::Address& to = value.addresses[i];
    std::memcpy(to.address, from.address.bytes.data(), sizeof to.address);
    to.prefix = from.prefix;
    to.of_router = from.of_router ? 1 : 0;
    to.valid_s = from.valid_s;
    to.preferred_s = from.preferred_s;
  }
  value.prefix_count = checkpoint.prefix_count;
  for (uint32_t i = 0; i < checkpoint.prefix_count; ++i) {
    std::memcpy(value.prefixes[i].prefix, checkpoint.prefixes[i].prefix.bytes.data(), sizeof value.prefixes[i].prefix);
    value.prefixes[i].bits = checkpoint.prefixes[i].bits;
    value.prefixes[i].valid_s = checkpoint.prefixes[i].valid_s;
  }
  std::memcpy(value.router, checkpoint.router.bytes.data(), sizeof value.router);
  value.router_s = checkpoint.router_s;
  value.mtu6 = checkpoint.mtu6;
  value.hop_limit6 = checkpoint.hop_limit6;
  persistence_.put(JournalKind::ip_host, port, 0, value);
  return true;
}

bool IpHosts::resume_host(uint32_t port, const IpHostValue& value) {
  if (port >= kPortsMax || value.address_count > ip::HostCheckpoint::kAddressesMax ||
      value.prefix_count > ip::HostCheckpoint::kPrefixesMax ||
      value.hop_limit6 > 0xFF) {
    return false;
  }
  Checkpoint<ip::HostCheckpoint> host{.since = value.since, .station = value.station, .state = {}};
  // Much of the record came from the wire. A wrong entry is left out, and must not prevent the takeover; the host finds it again.
  for (uint32_t i = 0; i < value.address_count; ++i) {
    const IpHostValue::Address& from = value.addresses[i];
    const ip::IpAddress address = ip::ipv6_address(from.address);
    const bool ipv4 = address.is_ipv4();
    const bool good = address.is_wire_host(ipv4) && from.prefix != 0 && from.prefix <= (ipv4 ? 32u : 128u) &&
                      (from.of_router == 0 || (from.of_router == 1 && !ipv4 && from.prefix == 64)) && from.preferred_s <= from.valid_s;
    if (!good) continue;
    ip::HostCheckpoint::Address& to = host.state.addresses[host.state.address_count++];
    to.address = address;
    to.prefix = static_cast<uint8_t>(from.prefix);
    to.of_router = from.of_router != 0;
    to.valid_s = from.valid_s;
    to.preferred_s = from.preferred_s;
  }
  for (uint32_t i = 0; i < value.prefix_count; ++i) {
    const IpHostValue::Prefix& from = value.prefixes[i];
    const ip::IpAddress prefix = ip::ipv6_address(from.prefix);
    if (from.bits > 128 || prefix.is_ipv4() || prefix.is_multicast() || prefix.is_link_local()) continue;
    host.state.prefixes[host.state.prefix_count++] = {prefix, static_cast<uint8_t>(from.bits), from.valid_s};
  }
  host.state.router = ip::ipv6_address(value.router);
  const ip::IpAddress& router = host.state.router;
  if (!router.is_unspecified() && (router.is_ipv4() || !router.is_wire_host(false))) return false;
  host.state.router_s = value.router_s;
  host.state.mtu6 = value.mtu6;
  host.state.hop_limit6 = static_cast<uint8_t>(value.hop_limit6);
  hosts_[port] = host;
  return true;
}

// The port's host continues with these addresses without probing them, and asks for all other state.
void IpHosts::resume_hosts(std::span<const PortInfo> ports) {
  const uint64_t now = monotonic_now();
  for (auto& [port, host] : std::exchange(hosts_, {})) {
    const auto at = std::find_if(options_.begin(), options_.end(), [number = port](const auto& each) { return each.port == number; });
    if (at == options_.end() || ports[port].address != host.station) {
      persistence_.changed(JournalKind::ip_host, port);
      continue;
    }
    hosts_[port] = host;
    ip::HostCheckpoint checkpoint = host.state;
    const uint64_t age = (now - std::min(now, host.since)) / kSecond;
    const auto shorten = [&](uint32_t& seconds) {
      if (seconds != ip::HostCheckpoint::kForever) seconds -= static_cast<uint32_t>(std::min<uint64_t>(seconds, age));
    };
    shorten(checkpoint.router_s);
    for (ip::HostCheckpoint::Prefix& each : checkpoint.prefixes) shorten(each.valid_s);
    ip::HostStatus& status = status_[port];
    for (uint32_t i = 0; i < checkpoint.address_count; ++i) {
      ip::HostCheckpoint::Address& each = checkpoint.addresses[i];
      shorten(each.valid_s);
      shorten(each.preferred_s);
      const auto end = status.addresses.begin() + status.count;
      const auto known = std::find_if(status.addresses.begin(), end, [&](const auto& other) { return other.address == each.address; });
      if (known != end) known->tentative = false;
      else if (each.of_router && at->autoconfigure && each.valid_s != 0 && status.count < ip::HostStatus::kAddressesMax) {
        status.addresses[status.count++] = {each.address, each.prefix, false};
      }
    }
    if (at->autoconfigure && checkpoint.router_s != 0 && status.gateway6.is_unspecified()) status.gateway6 = checkpoint.router;
    commands_.push(0, engine::ResumeHost{.port = port, .checkpoint = checkpoint});
  }
}

}  // namespace unet::service
