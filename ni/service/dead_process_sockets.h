// dead_process_sockets.h - finds the connections of dead processes in their socket tables and gives them to engine 0, which ends them; used
// by Service.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ni/service/charges.h"
#include "ni/service/dead_process.h"
#include "ni/service/engine_commands.h"
#include "ni/service/ip_hosts.h"
#include "ni/service/ip_ports.h"
#include "ni/service/persistence.h"

namespace unet::service {

class DeadProcessSockets {
 public:
  DeadProcessSockets(const IpHosts& hosts, EngineCommands& commands, Charges& charges, Persistence& persistence) noexcept
      : hosts_(hosts), commands_(commands), charges_(charges), persistence_(persistence) {}

  // Call before the endpoint's IP channel and claims close. Returns the number under which the engine then expects connections, as a last
  // ACK may arrive while the tables are read.
  uint32_t expect(uint32_t endpoint);
  void add(DeadProcess process);

  bool empty() const noexcept { return users_.empty(); }
  bool has_work() const noexcept { return !users_.empty() || !inherited_.empty(); }
  // Whether the claim could meet connections of a dead process of `owner`.
  bool has_claimed(uint64_t owner, const IpClaim& claim) const noexcept;

  // Reads some slots, one user after the other, no faster than the engine takes the connections. Returns the owner of a process when all
  // its slots are read.
  std::optional<uint64_t> poll();

  // Saves for the next NI the connections that the stopped engine has not ended (`orphans`), and those that it was not given.
  void save(std::vector<engine::OrphanedConnection> orphans);
  bool restore(const JournalItem& item);
  // Call before any claim is resumed: a new connection at a port must not meet the end of an old one. Connections of ports that are
  // claimed go first. No message moves until the engine goes on, so the rest follows later.
  void send_inherited(const IpPorts& claims);

 private:
  void send_inherited(uint32_t count);
  void forget_first(std::map<uint64_t, DeadProcessesOfUser>::iterator user);

  const IpHosts& hosts_;
  EngineCommands& commands_;
  Charges& charges_;
  Persistence& persistence_;
  std::map<uint64_t, DeadProcessesOfUser> users_;  // by owner (owner_of())
  uint64_t last_owner_ = 0;                        // the user that was read last
  uint32_t last_number_ = 0;                       // the last number of expect()
  std::vector<engine::OrphanedConnection> inherited_;  // from the previous NI, and not given to the engine yet
  Descriptor saved_;
};

}  // namespace unet::service
