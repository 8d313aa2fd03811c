// ip_requests.h - requests of IP: channels, claims of ports, tables of sockets, the configuration of the ports; used by Service.
//
// ip_requests_sockets.cc has the tables of sockets, and the claims that wait for connections of dead processes.
#pragma once

#include <cstdint>
#include <set>

#include "ni/service/channels.h"
#include "ni/service/clients.h"
#include "ni/service/endpoint_engines.h"
#include "ni/service/endpoints.h"
#include "ni/service/engine_commands.h"
#include "ni/service/ip_control.h"
#include "ni/service/operation.h"
#include "ni/service/ports.h"
#include "ni/service/service_options.h"

namespace unet::service {

class IpRequests {
 public:
  IpRequests(const ServiceOptions& options, const Ports& ports, EngineCommands& commands, Clients& clients, Endpoints& endpoints,
             EndpointEngines& engines, const Operation& operation, IpControl& ip, Channels& channels) noexcept
      : options_(options), ports_(ports), commands_(commands), clients_(clients), endpoints_(endpoints), engines_(engines),
        operation_(operation), ip_(ip), channels_(channels) {}

  void handle(ClientRecord& client, const control::OpenIp& packet);
  void handle(ClientRecord& client, const control::ClaimIp& packet);
  void handle(ClientRecord& client, const control::ReleaseIp& packet);
  void handle(ClientRecord& client, const control::SetIpClaim& packet);
  void handle(ClientRecord& client, const control::OwnIpFlow& packet);
  void handle(ClientRecord& client, const control::GetIpConfiguration& packet);
  void handle(ClientRecord& client, const control::OpenSockets& packet);
  void handle(ClientRecord& client, const control::ListSockets& packet);

  // Addresses or interfaces have changed: clients with IP ask for the configuration anew.
  void tell_changed();
  void on_changed(const engine::IpChanged& event);

  // A connection that begins at a port is not to meet the end of the one before. The engine takes commands in their order, so a claim waits
  // until the engine knows all of the same user's connections that were there. It stays in the socket, with what is behind it.
  bool must_wait(const ClientRecord& client, Bytes packet) const;
  void defer(ClientRecord& client);
  // Reads some of what dead processes left. A claim waits no longer when it is all read.
  void poll_dead();

  // A takeover (takeover_ip.cc): records of claims, tables, leases, hosts and orphans. When all are restored: begin_resume(), then resume()
  // of each endpoint.
  bool save(const JournalKey& key);  // false: it is gone
  Status restore(JournalItem& item);
  void begin_resume();
  void resume(EndpointRecord& endpoint);

 private:
  Status may_open(const ClientRecord& client, const EndpointRecord& endpoint);
  EndpointRecord* endpoint_of_claim(ClientRecord& client, const control::Header& header, uint32_t claim);
  bool sees(const ClientRecord& client, const EndpointRecord& endpoint) const;
  void ask_sockets(EndpointRecord& endpoint);

  const ServiceOptions& options_;
  const Ports& ports_;
  EngineCommands& commands_;
  Clients& clients_;
  Endpoints& endpoints_;
  EndpointEngines& engines_;
  const Operation& operation_;
  IpControl& ip_;
  Channels& channels_;
  std::set<uint32_t> deferred_;  // clients with a claim that waits for ip_.dead()
};

}  // namespace unet::service
