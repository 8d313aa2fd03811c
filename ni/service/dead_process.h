// dead_process.h - the socket tables and claims of one process that has ended, read a slot at a time; used by DeadProcessSockets.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ni/engine/orphan_connections.h"
#include "ni/service/memory.h"
#include "unet/ip.h"
#include "unet/socket_table.h"

namespace unet::service {

class DeadProcess {
 public:
  // `tables`: charged to `user` until this object is destroyed and no client holds them.
  // `owner`: owner_of() the connections' user, as in the engine's claims.
  // `number`: the number under which the engine expects the connections (ExpectOrphans).
  DeadProcess(uid_t user, uint64_t owner, uint32_t number, std::vector<SharedMemory> tables, const std::vector<IpClaim>& claims);

  // Reads the next slot. False: no slot is left. `left`: the slot's connection, which the engine must end, if the process had claimed its
  // port.
  bool next(std::optional<engine::OrphanedConnection>& left) noexcept;

  // Calls visit(port) for each claimed port of TCP.
  template <typename Visit>
  void for_each_port(Visit visit) const {
    for (const auto& [port, claims] : claims_) visit(port);
  }

  uid_t user() const noexcept { return user_; }
  uint64_t owner() const noexcept { return owner_; }
  // Moves out the size and the watch of each table; the memory stays charged until its watch tells that no client holds it.
  std::vector<std::pair<uint64_t, Descriptor>> take_watches();
  uint32_t number() const noexcept { return number_; }

 private:
  std::optional<engine::OrphanedConnection> check(const SocketRecord& record) const noexcept;
  bool claimed(const SocketRecord& record) const noexcept;

  uid_t user_;
  uint64_t owner_;
  uint32_t number_;
  std::vector<SharedMemory> tables_;
  std::unordered_map<uint32_t, std::vector<IpClaim>> claims_;  // claims of TCP, by port
  uint32_t table_ = 0, place_ = 0;
};

// The dead processes of one user, the oldest first.
class DeadProcessesOfUser {
 public:
  bool empty() const noexcept { return all_.empty(); }
  DeadProcess& front() noexcept { return all_.front(); }
  std::deque<DeadProcess>& all() noexcept { return all_; }
  void add(DeadProcess left);
  void pop_front();

  // Whether the claim could meet connections of these processes. A claim without a port may get any port that is free.
  bool has_claimed(const IpClaim& claim) const noexcept;

 private:
  std::deque<DeadProcess> all_;
  std::unordered_map<uint32_t, uint32_t> ports_;  // number of processes that had claimed the port
};

}  // namespace unet::service
