// ip_requests.cc - channels of IP, claims of ports, the configuration of the ports.
#include "ni/service/ip_requests.h"

#include <algorithm>
#include <string>

#include "unet/wire/address.h"

namespace unet::service {

using control::Op;

namespace {

template <typename T>
void append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

Status IpRequests::may_open(const ClientRecord& client, const EndpointRecord& endpoint) {
  if (Status more = operation_.takes_more(); !more) return more;
  if (ip_.hosts().empty()) {
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

void IpRequests::handle(ClientRecord& client, const control::OpenIp& packet) {
  EndpointRecord* endpoint = endpoints_.own_real(client, packet.header, "IP channel");
  if (endpoint == nullptr) return;
  if (Status status = may_open(client, *endpoint); !status) return clients_.fail_request(client, packet.header, status.error());
  engines_.assign(*endpoint, 0);
  // A client that has all doorbells of that engine is given another one's.
  if (endpoint->engine.value_or(0) != 0) {
    return clients_.fail_request(client, packet.header,
                                 {Errc::quota_exceeded, "engine 0 has IP, and as many endpoints of this connection as it can serve: open "
                                                        "another connection"});
  }
  const Result<ChannelRecord*> made = channels_.create(*endpoint, 0);
  if (!made) return clients_.fail_request(client, packet.header, made.error());
  ChannelRecord& channel = **made;
  channel.kind = control::ChannelKind::ni;
  channel.ip = true;
  channel.local = LocalOptions{0, 0};
  channel.peer = "ip";
  endpoint->ip_channel = channel.number;
  commands_.push(0, engine::OpenIp{.endpoint = endpoint->id, .channel = channel.number});
  channels_.finish_connect(*endpoint, channel, Op::open_ip, packet.header.cookie, {});
}

void IpRequests::handle(ClientRecord& client, const control::ClaimIp& packet) {
  EndpointRecord* endpoint = endpoints_.own(client, packet.header);
  if (endpoint == nullptr) return;
  if (Status more = operation_.takes_more(); !more) return clients_.fail_request(client, packet.header, more.error());
  const Result<IpClaimed> claimed = ip_.claim(client, *endpoint, packet.claim);
  if (!claimed) return clients_.fail_request(client, packet.header, claimed.error());
  control::Reply reply = make_reply(packet.header);
  reply.claim_ip = {.claim = claimed->claim, .port = claimed->port, .plenty = claimed->plenty};
  clients_.send_packet(client, reply);
}

// nullptr: the client's endpoint has no such claim, which it has been told.
EndpointRecord* IpRequests::endpoint_of_claim(ClientRecord& client, const control::Header& header, uint32_t claim) {
  EndpointRecord* const endpoint = endpoints_.own(client, header);
  if (endpoint == nullptr || endpoint->ip_claims.count(claim) != 0) return endpoint;
  clients_.fail_request(client, header, {Errc::not_found, "the endpoint has no claim " + std::to_string(claim)});
  return nullptr;
}

void IpRequests::handle(ClientRecord& client, const control::ReleaseIp& packet) {
  EndpointRecord* endpoint = endpoint_of_claim(client, packet.header, packet.claim);
  if (endpoint == nullptr) return;
  commands_.push(0, engine::ReleaseIp{.number = packet.claim});
  ip_.release(client, *endpoint, packet.claim);
  clients_.ok(client, packet.header);
}

void IpRequests::handle(ClientRecord& client, const control::SetIpClaim& packet) {
  EndpointRecord* endpoint = endpoint_of_claim(client, packet.header, packet.claim);
  if (endpoint == nullptr) return;
  const Status set = ip_.set(*endpoint, packet.claim, packet.accepts_new_flows);
  if (!set) return clients_.fail_request(client, packet.header, set.error());
  clients_.ok(client, packet.header);
}

void IpRequests::handle(ClientRecord& client, const control::OwnIpFlow& packet) {
  if (endpoint_of_claim(client, packet.header, packet.claim) == nullptr) return;
  const engine::IpFlow flow{
      .local = packet.local, .remote = packet.remote, .local_port = packet.local_port, .remote_port = packet.remote_port};
  if (Status owned = ip_.own_flow(packet.claim, flow); !owned) return clients_.fail_request(client, packet.header, owned.error());
  clients_.ok(client, packet.header);
}

void IpRequests::handle(ClientRecord& client, const control::GetIpConfiguration& packet) {
  if (endpoints_.own(client, packet.header) == nullptr) return;
  if (ip_.hosts().empty()) return clients_.fail_request(client, packet.header, {Errc::not_found, "this network interface has no IP"});
  std::string addresses, interfaces, routes;
  control::Reply reply = make_reply(packet.header);
  reply.ip_configuration = {};
  for (const auto& [port, status] : ip_.hosts().all()) {
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
    info.mtu = ports_.is_up(port) ? std::min(status.mtu, ports_.mtu_now(port)) : 0;
    info.gateway4 = status.gateway4;
    info.gateway6 = status.gateway6;
    append(interfaces, info);
    ++reply.ip_configuration.interfaces;
  }
  for (const engine::IpInterfaceOptions& each : options_.ip) {
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
  if (!memory) return clients_.fail_request(client, packet.header, memory.error());
  clients_.send_packet(client, reply, {memory->get()});
}

void IpRequests::tell_changed() {
  for (const auto& [id, endpoint] : endpoints_.all()) {
    if (!endpoint->ip_channel || endpoint->detaching) continue;
    auto event = zeroed<control::IpChanged>();
    event.header = {.op = control::Op::ip_changed, .endpoint = id, .cookie = 0};
    clients_.send_packet(*clients_.at(endpoint->client), event);
  }
}

void IpRequests::on_changed(const engine::IpChanged& event) {
  if (ip_.hosts().on_changed(event, ports_[event.port].address)) tell_changed();
}

}  // namespace unet::service
