// dead_process_sockets.h - connections that dead processes have left, found in their tables of sockets and given to engine 0, which ends
// them; used by Service.
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

  // Call before the endpoint's IP channel closes, and its claims with it: a last ACK may come while the tables are read, so the engine
  // expects their connections under this number.
  uint32_t expect(uint32_t endpoint);
  void add(DeadProcess process);

  bool empty() const noexcept { return users_.empty(); }
  bool has_work() const noexcept { return !users_.empty() || !inherited_.empty(); }
  // A dead process of `owner` could have connections of these ports.
  bool has_claimed(uint64_t owner, const IpClaim& claim) const noexcept;

  // Reads some slots, of one user after the other, no faster than the engine takes the connections. Returns the owner of a process that
  // is read to its end.
  std::optional<uint64_t> poll();

  // Saves for the next NI what the engine, which has stopped, has not ended, and what it was not told.
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
  uint64_t last_owner_ = 0;                        // the one that was read last
  uint32_t last_number_ = 0;                       // the engine expects connections by numbers
  std::vector<engine::OrphanedConnection> inherited_;  // from the NI before this one: the engine was not told of them yet
  Descriptor saved_;
};

}  // namespace unet::service
