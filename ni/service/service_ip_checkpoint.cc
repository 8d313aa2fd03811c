// service_ip_checkpoint.cc - claims, leases and addresses in the journal, and what the next network interface makes of them.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "ni/service/journal_records.h"
#include "ni/service/service.h"
#include "unet/wire/address.h"

namespace unet::service {
namespace {

ip::IpAddress address_of(const uint8_t (&from)[16]) noexcept {
  ip::IpAddress address;
  std::memcpy(address.bytes.data(), from, sizeof from);
  return address;
}

}  // namespace

bool Service::write_ip_claim(uint32_t endpoint, uint32_t number) {
  const IpPorts::Record* const record = ip_ports_.at(number);
  if (record == nullptr || record->endpoint != endpoint) return false;
  const IpClaim& claim = record->claim;
  auto value = zeroed<IpClaimValue>();
  std::memcpy(value.local, claim.local.bytes.data(), sizeof value.local);
  std::memcpy(value.remote, claim.remote.bytes.data(), sizeof value.remote);
  value.port = claim.port;
  value.ports = claim.ports;
  value.remote_port = claim.remote_port;
  value.protocol = claim.protocol;
  value.takes_new = static_cast<uint8_t>(claim.takes_new);
  value.group = claim.group;
  value.token = record->token;
  value.reuses = claim.reuses;
  persistence_.put(JournalKind::ip_claim, endpoint, number, value);
  return true;
}

bool Service::resume_ip_claim(uint32_t id, uint64_t number, const IpClaimValue& value) {
  EndpointRecord* const endpoint = endpoint_at(id);
  if (endpoint == nullptr || !endpoint->ip_channel || number >= kIpClaimsMax) return false;
  const ClientRecord& client = *client_at(endpoint->client);
  IpPorts::Record record{.endpoint = id, .user = owner_of(client), .claim = {}};
  std::memcpy(record.claim.local.bytes.data(), value.local, sizeof value.local);
  std::memcpy(record.claim.remote.bytes.data(), value.remote, sizeof value.remote);
  record.claim.port = value.port;
  record.claim.ports = value.ports;
  record.claim.remote_port = value.remote_port;
  record.claim.protocol = value.protocol;
  record.claim.takes_new = static_cast<TakesNew>(value.takes_new);
  record.claim.group = value.group;
  record.claim.reuses = value.reuses != 0 ? 1 : 0;
  record.token = value.token;
  if (!ip_ports_.resume(static_cast<uint32_t>(number), record)) return false;
  endpoint->ip_claims.insert(static_cast<uint32_t>(number));
  charges_.resume(client.who.uid, {.ip_claims = 1, .ip_ports = record.claim.ports});
  return true;
}

bool Service::write_ip_lease(uint32_t port) {
  const auto at = ip_leases_.find(port);
  if (at == ip_leases_.end()) return false;
  const ip::DhcpKept& kept = at->second.checkpoint;
  auto value = zeroed<IpLeaseValue>();
  value.since = at->second.since;
  value.renew_in = kept.renew_in;
  value.rebind_in = kept.rebind_in;
  value.end_in = kept.end_in;
  const auto put = [](uint8_t* to, const ip::IpAddress& from) { std::memcpy(to, from.bytes.data(), sizeof value.address); };
  put(value.address, kept.lease.address);
  put(value.server, kept.lease.server);
  if (kept.lease.router) put(value.router, *kept.lease.router);
  for (uint32_t i = 0; i < kept.lease.name_server_count; ++i) put(value.name_servers[i], kept.lease.name_servers[i]);
  value.prefix = kept.lease.prefix;
  value.mtu = kept.lease.mtu;
  value.name_server_count = kept.lease.name_server_count;
  value.has_router = kept.lease.router ? 1 : 0;
  value.station = at->second.station;
  persistence_.put(JournalKind::ip_lease, port, 0, value);
  return true;
}

bool Service::resume_ip_lease(uint32_t port, const IpLeaseValue& value) {
  IpLease lease{.since = value.since, .station = value.station, .checkpoint = {}};
  lease.checkpoint.renew_in = value.renew_in;
  lease.checkpoint.rebind_in = value.rebind_in;
  lease.checkpoint.end_in = value.end_in;
  ip::DhcpLease& of = lease.checkpoint.lease;
  of.address = address_of(value.address);
  of.server = address_of(value.server);
  if (value.has_router != 0) of.router = address_of(value.router);
  of.prefix = static_cast<uint8_t>(value.prefix);
  of.mtu = static_cast<uint16_t>(value.mtu);
  of.name_server_count = value.name_server_count;
  const bool good = port < kPortsMax && value.prefix <= 32 && value.mtu <= 0xFFFF && value.has_router <= 1 &&
                    value.name_server_count <= ip::kNameServersMax && of.address.is_wire_host(true) &&
                    of.server.is_wire_host(true) && (!of.router || of.router->is_wire_host(true)) && value.renew_in <= value.rebind_in &&
                    value.rebind_in <= value.end_in;
  if (!good) return false;
  for (uint32_t i = 0; i < value.name_server_count; ++i) of.name_servers[i] = address_of(value.name_servers[i]);
  ip_leases_[port] = lease;
  return true;
}

// Whoever had the address a moment ago has it now, for what is left of its time. A port that takes none any longer forgets it.
void Service::resume_leases() {
  const uint64_t now = monotonic_now();
  for (auto& [port, lease] : std::exchange(ip_leases_, {})) {
    const auto takes = [&, number = port](const engine::IpPortOptions& each) { return each.port == number && each.dhcp; };
    const uint64_t age = now - std::min(now, lease.since);
    const bool wanted = std::any_of(options_.ip.begin(), options_.ip.end(), takes) && ports_[port].address == lease.station;
    if (!wanted || lease.checkpoint.end_in <= age) {
      persistence_.changed(JournalKind::ip_lease, port);
      continue;
    }
    ip::DhcpKept kept = lease.checkpoint;
    for (Nanoseconds* each : {&kept.renew_in, &kept.rebind_in, &kept.end_in}) {
      if (*each != ~Nanoseconds{0}) *each -= std::min(*each, age);
    }
    ip_leases_[port] = lease;
    push(0, engine::ResumeLease{.port = port, .lease = kept});
    ip::HostStatus& status = ip_status_[port];
    if (status.count < ip::HostStatus::kAddressesMax) status.addresses[status.count++] = {kept.lease.address, kept.lease.prefix, false};
    if (status.gateway4.is_unspecified()) status.gateway4 = kept.lease.router.value_or(ip::IpAddress{});
  }
}

bool Service::write_ip_host(uint32_t port) {
  const auto at = ip_hosts_.find(port);
  if (at == ip_hosts_.end()) return false;
  const ip::HostKept& kept = at->second.checkpoint;
  auto value = zeroed<IpHostValue>();
  static_assert(std::size(value.addresses) == ip::HostKept::kAddressesMax && std::size(value.prefixes) == ip::HostKept::kPrefixesMax);
  value.since = at->second.since;
  value.station = at->second.station;
  value.address_count = kept.address_count;
  for (uint32_t i = 0; i < kept.address_count; ++i) {
    const ip::HostKept::Address& from = kept.addresses[i];
    IpHostValue::Address& to = value.addresses[i];
    std::memcpy(to.address, from.address.bytes.data(), sizeof to.address);
    to.prefix = from.prefix;
    to.of_router = from.of_router ? 1 : 0;
    to.valid_s = from.valid_s;
    to.preferred_s = from.preferred_s;
  }
  value.prefix_count = kept.prefix_count;
  for (uint32_t i = 0; i < kept.prefix_count; ++i) {
    std::memcpy(value.prefixes[i].prefix, kept.prefixes[i].prefix.bytes.data(), sizeof value.prefixes[i].prefix);
    value.prefixes[i].bits = kept.prefixes[i].bits;
    value.prefixes[i].valid_s = kept.prefixes[i].valid_s;
  }
  std::memcpy(value.router, kept.router.bytes.data(), sizeof value.router);
  value.router_s = kept.router_s;
  value.mtu6 = kept.mtu6;
  value.hop_limit6 = kept.hop_limit6;
  persistence_.put(JournalKind::ip_host, port, 0, value);
  return true;
}

bool Service::resume_ip_host(uint32_t port, const IpHostValue& value) {
  if (port >= kPortsMax || value.address_count > ip::HostKept::kAddressesMax || value.prefix_count > ip::HostKept::kPrefixesMax ||
      value.hop_limit6 > 0xFF) {
    return false;
  }
  IpHost host{.since = value.since, .station = value.station, .checkpoint = {.address_count = value.address_count,
                                                                       .prefix_count = value.prefix_count}};
  // Much of it came from the wire: what is not as it should be is left out, and asked for anew, and keeps nobody from going on.
  host.checkpoint.address_count = host.checkpoint.prefix_count = 0;
  for (uint32_t i = 0; i < value.address_count; ++i) {
    const IpHostValue::Address& from = value.addresses[i];
    const ip::IpAddress address = address_of(from.address);
    const bool ipv4 = address.is_ipv4();
    const bool good = address.is_wire_host(ipv4) && from.prefix != 0 && from.prefix <= (ipv4 ? 32u : 128u) &&
                      (from.of_router == 0 || (from.of_router == 1 && !ipv4 && from.prefix == 64)) && from.preferred_s <= from.valid_s;
    if (!good) continue;
    ip::HostKept::Address& to = host.checkpoint.addresses[host.checkpoint.address_count++];
    to.address = address;
    to.prefix = static_cast<uint8_t>(from.prefix);
    to.of_router = from.of_router != 0;
    to.valid_s = from.valid_s;
    to.preferred_s = from.preferred_s;
  }
  for (uint32_t i = 0; i < value.prefix_count; ++i) {
    const IpHostValue::Prefix& from = value.prefixes[i];
    const ip::IpAddress prefix = address_of(from.prefix);
    if (from.bits > 128 || prefix.is_ipv4() || prefix.is_multicast() || prefix.is_link_local()) continue;
    host.checkpoint.prefixes[host.checkpoint.prefix_count++] = {prefix, static_cast<uint8_t>(from.bits), from.valid_s};
  }
  host.checkpoint.router = address_of(value.router);
  const ip::IpAddress& router = host.checkpoint.router;
  if (!router.is_unspecified() && (router.is_ipv4() || !router.is_wire_host(false))) return false;
  host.checkpoint.router_s = value.router_s;
  host.checkpoint.mtu6 = value.mtu6;
  host.checkpoint.hop_limit6 = static_cast<uint8_t>(value.hop_limit6);
  ip_hosts_[port] = host;
  return true;
}

// What the port's host had a moment ago it has now, and asks nobody; all else it asks for.
void Service::resume_hosts() {
  const uint64_t now = monotonic_now();
  for (auto& [port, host] : std::exchange(ip_hosts_, {})) {
    const auto at = std::find_if(options_.ip.begin(), options_.ip.end(), [number = port](const auto& each) { return each.port == number; });
    if (at == options_.ip.end() || ports_[port].address != host.station) {
      persistence_.changed(JournalKind::ip_host, port);
      continue;
    }
    ip_hosts_[port] = host;
    ip::HostKept kept = host.checkpoint;
    const uint64_t age = (now - std::min(now, host.since)) / kSecond;
    const auto shorten = [&](uint32_t& seconds) {
      if (seconds != ip::HostKept::kForever) seconds -= static_cast<uint32_t>(std::min<uint64_t>(seconds, age));
    };
    shorten(kept.router_s);
    for (ip::HostKept::Prefix& each : kept.prefixes) shorten(each.valid_s);
    ip::HostStatus& status = ip_status_[port];
    for (uint32_t i = 0; i < kept.address_count; ++i) {
      ip::HostKept::Address& each = kept.addresses[i];
      shorten(each.valid_s);
      shorten(each.preferred_s);
      const auto end = status.addresses.begin() + status.count;
      const auto known = std::find_if(status.addresses.begin(), end, [&](const auto& other) { return other.address == each.address; });
      if (known != end) known->tentative = false;
      else if (each.of_router && at->autoconfigure && each.valid_s != 0 && status.count < ip::HostStatus::kAddressesMax) {
        status.addresses[status.count++] = {each.address, each.prefix, false};
      }
    }
    if (at->autoconfigure && kept.router_s != 0 && status.gateway6.is_unspecified()) status.gateway6 = kept.router;
    push(0, engine::ResumeHost{.port = port, .kept = kept});
  }
}

// The engine is told of the endpoint's channel and claims. An NI that has no IP any longer closes them.
void Service::resume_ip(EndpointRecord& endpoint) {
  if (!endpoint.ip_channel) return;
  const uint32_t number = *endpoint.ip_channel;
  if (ip_status_.empty()) return tell_closed(endpoint, endpoint.channels.at(number), control::CloseReason::wire_lost);
  push(0, engine::OpenIp{.endpoint = endpoint.id, .channel = number});
  for (const uint32_t claim : endpoint.ip_claims) {
    push(0, engine::ClaimIp{.endpoint = endpoint.id, .number = claim, .claim = ip_ports_.at(claim)->claim,
                             .user = ip_ports_.at(claim)->user});
  }
}

}  // namespace unet::service
