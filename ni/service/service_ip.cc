// service_ip.cc - IP: channels for it, claims of ports, what the ports have, and endpoints that are found by what they claim.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>

#include "ni/service/journal_records.h"
#include "ni/service/service.h"
#include "unet/base/check.h"
#include "unet/wire/address.h"

namespace unet::service {

using control::Op;
using State = ChannelRecord::State;

namespace {

template <typename T>
void append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

// Before a port has told what it has: its configuration. Of what is probed nobody has said yet that it is free.
void Service::begin_ip() {
  for (const engine::IpPortOptions& each : options_.ip) {
    ip::HostStatus& status = ip_status_[each.port];
    for (const ip::HostAddress& address : each.addresses) {
      if (status.count < ip::HostStatus::kAddressesMax) status.addresses[status.count++] = {address.address, address.prefix, each.probe};
    }
    status.gateway4 = each.gateway4.value_or(ip::IpAddress{});
    status.gateway6 = each.gateway6.value_or(ip::IpAddress{});
  }
}

bool Service::has_address(const ip::IpAddress& address) const {
  for (const auto& [port, status] : ip_status_) {
    for (uint32_t i = 0; i < status.count; ++i) {
      if (status.addresses[i].address == address) return true;
    }
  }
  return false;
}

Status Service::may_open_ip(const ClientRecord& client, const EndpointRecord& endpoint) {
  if (Status more = takes_more(); !more) return more;
  if (ip_status_.empty()) {
    return fail(Errc::not_found, "this network interface has no IP: its configuration has to give a port an address (ip, --ip)");
  }
  if (client.rights.ip_ports.empty()) {
    return fail(Errc::not_permitted, "the policy of this network interface gives user " + std::to_string(client.who.uid) +
                                         " no port of IP (ip_ports)");
  }
  if (endpoint.ip_channel) return fail(Errc::already_exists, "the endpoint has an IP channel already");
  if (endpoint.engine.value_or(0) != 0) {
    return fail(Errc::invalid_argument, "engine 0 has IP, and the endpoint is engine " + std::to_string(*endpoint.engine) +
                                       "'s by its first channel: open IP on an endpoint of its own, or before other channels");
  }
  return {};
}

void Service::handle(ClientRecord& client, const control::OpenIp& packet) {
  EndpointRecord* endpoint = own_real_endpoint(client, packet.header, "IP channel");
  if (endpoint == nullptr) return;
  if (Status status = may_open_ip(client, *endpoint); !status) return fail_request(client, packet.header, status.error());
  serve(*endpoint, 0);
  // A client that has all doorbells of that engine is given another one's.
  if (endpoint->engine.value_or(0) != 0) {
    return fail_request(client, packet.header, {Errc::quota_exceeded, "engine 0 has IP, and as many endpoints of this connection as it can "
                                                                      "serve: open another connection"});
  }
  const Result<ChannelRecord*> made = new_channel(*endpoint, 0);
  if (!made) return fail_request(client, packet.header, made.error());
  ChannelRecord& channel = **made;
  channel.kind = control::ChannelKind::ni;
  channel.ip = true;
  channel.local = LocalOptions{0, 0};
  channel.peer = "ip";
  endpoint->ip_channel = channel.number;
  push(0, engine::OpenIp{.endpoint = endpoint->id, .channel = channel.number});
  finish_connect(*endpoint, channel, Op::open_ip, packet.header.cookie, {});
}

Result<IpClaimed> Service::claim_ip(ClientRecord& client, EndpointRecord& endpoint, const IpClaim& claim) {
  if (Status more = takes_more(); !more) return tl::unexpected(more.error());
  if (!endpoint.ip_channel) return fail(Errc::invalid_argument, "the endpoint has no IP channel: open one first");
  if (Status status = check_ip_claim(claim); !status) return tl::unexpected(status.error());
  if (!claim.local.is_unspecified() && !claim.local.is_multicast() && !has_address(claim.local)) {
    return fail(Errc::not_found, ip::text_of(claim.local) + " is not an address of this network interface");
  }
  if (Status status = keeper_takes(0); !status) return tl::unexpected(status.error());
  const Usage wanted{.ip_claims = 1, .ip_ports = claim.ports};
  if (Status status = accounts_.take(client.who.uid, client.rights, wanted); !status) return tl::unexpected(status.error());
  Result<IpClaimed> claimed = ip_ports_.claim(endpoint.id, owner_of(client), claim, client.rights);
  if (!claimed) {
    accounts_.give_back(client.who.uid, wanted);
    return claimed;
  }
  const Usage used = accounts_.of(client.who.uid);
  claimed->plenty = claimed->plenty && used.ip_claims <= client.rights.ip_claims / 4 && used.ip_ports <= client.rights.ip_ports_at_once / 4;
  endpoint.ip_claims.insert(claimed->claim);
  changed(JournalKind::ip_claim, endpoint.id, claimed->claim);
  push(0, engine::ClaimIp{.endpoint = endpoint.id, .number = claimed->claim, .claim = ip_ports_.at(claimed->claim)->claim,
                           .user = owner_of(client)});
  return claimed;
}

void Service::handle(ClientRecord& client, const control::ClaimIp& packet) {
  EndpointRecord* endpoint = own_endpoint(client, packet.header);
  if (endpoint == nullptr) return;
  const Result<IpClaimed> claimed = claim_ip(client, *endpoint, packet.claim);
  if (!claimed) return fail_request(client, packet.header, claimed.error());
  auto reply = zeroed<control::Reply>();
  reply.header = packet.header;
  reply.claim_ip = {.claim = claimed->claim, .port = claimed->port, .plenty = claimed->plenty};
  send_packet(client, reply);
}

// nullptr: the client's endpoint has no such claim, which it has been told.
EndpointRecord* Service::endpoint_of_claim(ClientRecord& client, const control::Header& header, uint32_t claim) {
  EndpointRecord* const endpoint = own_endpoint(client, header);
  if (endpoint == nullptr || endpoint->ip_claims.count(claim) != 0) return endpoint;
  fail_request(client, header, {Errc::not_found, "the endpoint has no claim " + std::to_string(claim)});
  return nullptr;
}

void Service::handle(ClientRecord& client, const control::ReleaseIp& packet) {
  EndpointRecord* endpoint = endpoint_of_claim(client, packet.header, packet.claim);
  if (endpoint == nullptr) return;
  push(0, engine::ReleaseIp{.number = packet.claim});
  release_claim(*endpoint, packet.claim);
  ok(client, packet.header);
}

void Service::handle(ClientRecord& client, const control::SetIpClaim& packet) {
  EndpointRecord* endpoint = endpoint_of_claim(client, packet.header, packet.claim);
  if (endpoint == nullptr) return;
  const auto takes_new = static_cast<TakesNew>(packet.takes_new);
  if (packet.takes_new > static_cast<uint32_t>(TakesNew::yes)) {
    return fail_request(client, packet.header, {Errc::invalid_argument, "takes_new is none of no, if_nobody_does, yes"});
  }
  if (Status set = ip_ports_.set(packet.claim, takes_new); !set) return fail_request(client, packet.header, set.error());
  push(0, engine::SetClaim{.number = packet.claim, .takes_new = takes_new});
  changed(JournalKind::ip_claim, endpoint->id, packet.claim);
  ok(client, packet.header);
}

// Members of a share are one user's, and know its token. The engine knows which of them has the connection, if any.
void Service::handle(ClientRecord& client, const control::OwnIpFlow& packet) {
  EndpointRecord* endpoint = endpoint_of_claim(client, packet.header, packet.claim);
  if (endpoint == nullptr) return;
  const IpClaim& claim = ip_ports_.at(packet.claim)->claim;
  if (claim.protocol != ip::Protocol::kTcp || claim.group == 0 || claim.port != packet.local_port) {
    return fail_request(client, packet.header, {Errc::invalid_argument, "only connections of a shared port of TCP change their owner"});
  }
  push(0, engine::OwnFlow{.number = packet.claim, .flow = {.local = packet.local, .remote = packet.remote,
                                                           .local_port = packet.local_port, .remote_port = packet.remote_port}});
  ok(client, packet.header);
}

void Service::release_claim(EndpointRecord& endpoint, uint32_t number) {
  const uint32_t ports = ip_ports_.at(number)->claim.ports;
  accounts_.give_back(client_at(endpoint.client)->who.uid, {.ip_claims = 1, .ip_ports = ports});
  ip_ports_.release(number);
  endpoint.ip_claims.erase(number);
  changed(JournalKind::ip_claim, endpoint.id, number);
}

// Its IP channel is closed: the engine lets go of the claims with it.
void Service::end_ip(EndpointRecord& endpoint) {
  leave_sockets(endpoint);
  while (!endpoint.ip_claims.empty()) release_claim(endpoint, *endpoint.ip_claims.begin());
  endpoint.ip_channel.reset();
}

void Service::handle(ClientRecord& client, const control::GetIpConfiguration& packet) {
  if (own_endpoint(client, packet.header) == nullptr) return;
  if (ip_status_.empty()) return fail_request(client, packet.header, {Errc::not_found, "this network interface has no IP"});
  std::string addresses, interfaces, routes;
  auto reply = zeroed<control::Reply>();
  reply.header = packet.header;
  reply.ip_configuration = {};
  for (const auto& [port, status] : ip_status_) {
    for (uint32_t i = 0; i < status.count; ++i) {
      const ip::HostStatus::Address& each = status.addresses[i];
      auto info = zeroed<control::IpAddressInfo>();
      info.address = each.address;
      info.port = port;
      info.prefix = each.prefix;
      info.tentative = each.tentative ? 1 : 0;
      append(addresses, info);
      ++reply.ip_configuration.addresses;
    }
    auto info = zeroed<control::IpInterfaceInfo>();
    info.port = port;
    info.mtu = is_up(port) ? std::min(status.mtu, mtu_now(port)) : 0;
    info.gateway4 = status.gateway4;
    info.gateway6 = status.gateway6;
    append(interfaces, info);
    ++reply.ip_configuration.interfaces;
  }
  for (const engine::IpPortOptions& each : options_.ip) {
    for (const ip::HostRoute& route : each.routes) {
      auto info = zeroed<control::IpRouteInfo>();
      info.network = route.network;
      info.gateway = route.gateway;
      info.port = each.port;
      info.prefix = route.prefix;
      append(routes, info);
      ++reply.ip_configuration.routes;
    }
  }
  const Result<Descriptor> memory = create_text("unet-ip", addresses + interfaces + routes);
  if (!memory) return fail_request(client, packet.header, memory.error());
  send_packet(client, reply, {memory->get()});
}

// "tcp:80:10.0.0.1"
Result<IpPorts::Found> Service::find_claim(std::string_view target) {
  const auto none = [&] { return fail(Errc::not_found, "no endpoint of this network interface claims " + in_quotes(target)); };
  const uint8_t protocol = target.substr(0, 4) == "tcp:" ? 6 : 17;
  uint16_t port = 0;
  const char* const begin = target.data() + 4;
  const char* const end = target.data() + target.size();
  const auto [at, error] = std::from_chars(begin, end, port);
  if (error != std::errc() || at == end || *at != ':' || port == 0) {
    return fail(Errc::invalid_argument, in_quotes(target) + ": write tcp:PORT:ADDRESS or udp:PORT:ADDRESS");
  }
  const Result<ip::IpAddress> address = ip::parse_ip({at + 1, static_cast<size_t>(end - at - 1)});
  if (!address) return fail(Errc::invalid_argument, in_quotes(target) + ": " + address.error().text);
  // It may come yet, from a router or a server: nobody is refused for that as if nobody had the port.
  if (!has_address(*address)) return fail(Errc::refused, ip::text_of(*address) + " is not an address of this network interface");
  const std::optional<IpPorts::Found> found = ip_ports_.find(protocol, *address, port);
  if (found) return *found;
  if (!ip_ports_.claims_any(protocol, port)) return none();
  return fail(Errc::refused, "who claims " + in_quotes(target) + " hears one remote end only, or is at another address");
}

void Service::on_ip_changed(const engine::IpChanged& event) {
  const auto at = ip_status_.find(event.port);
  if (at != ip_status_.end() && at->second != event.status) {
    at->second = event.status;
    tell_ip_changed();
  }
  if (event.lease) ip_leases_[event.port] = {.since = monotonic_now(), .station = ports_[event.port].address, .kept = *event.lease};
  else if (ip_leases_.erase(event.port) == 0) return;
  changed(JournalKind::ip_lease, event.port);
}

void Service::on_ip_kept(const engine::IpKept& event) {
  ip_hosts_[event.port] = {.since = monotonic_now(), .station = ports_[event.port].address, .kept = event.kept};
  changed(JournalKind::ip_host, event.port);
}

}  // namespace unet::service
