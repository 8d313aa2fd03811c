// ip_control.h - IP of endpoints: claims of ports, tables of sockets, hosts of the ports, connections of dead processes; used by
// IpRequests and Channels.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string_view>

#include "ni/service/charges.h"
#include "ni/service/dead_process_sockets.h"
#include "ni/service/engine_commands.h"
#include "ni/service/ip_hosts.h"
#include "ni/service/ip_ports.h"
#include "ni/service/persistence.h"
#include "ni/service/records.h"

namespace unet::service {

struct IpClaimValue;  // journal_records.h

class IpControl {
 public:
  // `options` must outlive this; `seed`: for IpPorts.
  IpControl(const std::vector<engine::IpInterfaceOptions>& options, uint64_t seed, EngineCommands& commands, Charges& charges,
            Persistence& persistence)
      : commands_(commands), charges_(charges), persistence_(persistence), hosts_(options, commands, persistence), ports_(seed),
        dead_(hosts_, commands, charges, persistence) {}

  IpHosts& hosts() noexcept { return hosts_; }
  const IpHosts& hosts() const noexcept { return hosts_; }
  const IpPorts& ports() const noexcept { return ports_; }
  DeadProcessSockets& dead() noexcept { return dead_; }
  const DeadProcessSockets& dead() const noexcept { return dead_; }

  // Claims. `client` is the endpoint's, and `number` one of the endpoint's claims.
  Result<IpClaimed> claim(const ClientRecord& client, EndpointRecord& endpoint, const IpClaim& claim);
  Status set(const EndpointRecord& endpoint, uint32_t number, uint32_t accepts_new_flows);
  // Gives a connection to the endpoint. Members of a share are one user's, and know its token. The engine knows which of them has the
  // connection, if any.
  Status own_flow(uint32_t number, const engine::IpFlow& flow);
  void release(const ClientRecord& client, EndpointRecord& endpoint, uint32_t number);
  // "tcp:80:10.0.0.1"
  Result<IpPorts::Found> find(std::string_view target);

  // Tables of sockets (unet/socket_table.h).
  Status make_table(const ClientRecord& client, EndpointRecord& endpoint);
  void remove_table(const ClientRecord& client, EndpointRecord& endpoint);  // removes the endpoint's last table
  const std::set<uint32_t>& with_tables() const noexcept { return with_tables_; }  // endpoints that have tables

  // Call expect_end() before the endpoint's IP channel closes, and end() after: the engine drops the claims with the channel.
  void expect_end(EndpointRecord& endpoint);
  void end(const ClientRecord& client, EndpointRecord& endpoint);

  // A takeover (takeover_ip.cc).
  bool write_claim(uint32_t endpoint, uint32_t number);
  bool resume_claim(const ClientRecord& client, EndpointRecord& endpoint, uint64_t number, const IpClaimValue& value);
  bool resume_table(const ClientRecord& client, EndpointRecord& endpoint, JournalItem& item);
  // Tells the engine of the endpoint's channel and claims.
  void resume(const EndpointRecord& endpoint);
  // Tells the engine which connections of shared ports are the endpoint's. It ignores connections in the table at other ports.
  void send_flows(const EndpointRecord& endpoint);

 private:
  void leave_tables(const ClientRecord& client, EndpointRecord& endpoint);

  EngineCommands& commands_;
  Charges& charges_;
  Persistence& persistence_;
  IpHosts hosts_;
  IpPorts ports_;
  std::set<uint32_t> with_tables_;
  DeadProcessSockets dead_;
};

}  // namespace unet::service
