// ip_hosts.h - the service's view of IP at the NI's ports: addresses, routers, leases, and their checkpoints for a takeover; used by
// Service and its parts. Engine 0 runs the IP hosts and reports changes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ni/engine/ip_options.h"
#include "ni/service/engine_commands.h"
#include "ni/service/persistence.h"
#include "ni/service/ports.h"

namespace unet::service {

struct IpHostValue;  // journal_records.h
struct IpLeaseValue;

class IpHosts {
 public:
  // `options` must outlive this.
  IpHosts(const std::vector<engine::IpInterfaceOptions>& options, EngineCommands& commands, Persistence& persistence);

  bool empty() const noexcept { return status_.empty(); }  // no port has IP
  bool has_address(const ip::IpAddress& address) const;
  const std::map<uint32_t, ip::HostStatus>& all() const noexcept { return status_; }  // by port

  // True: clients must be told. `station`: the port's address.
  bool on_changed(const engine::IpChanged& event, const MacAddress& station);
  void on_checkpoint(const engine::HostCheckpointed& event, const MacAddress& station);

  // Write a record of the journal. False: there is nothing to write.
  bool write_lease(uint32_t port);
  bool write_host(uint32_t port);
  // False: the value is invalid.
  bool resume_lease(uint32_t port, const IpLeaseValue& value);
  bool resume_host(uint32_t port, const IpHostValue& value);
  // Gives the restored state to the engine, once all records are read.
  void resume(std::span<const PortInfo> ports);

 private:
  template <typename T>
  struct Checkpoint {
    uint64_t since = 0;  // by CLOCK_MONOTONIC
    MacAddress station{};
    T state;
  };
  void resume_hosts(std::span<const PortInfo> ports);
  void resume_leases(std::span<const PortInfo> ports);

  const std::vector<engine::IpInterfaceOptions>& options_;
  EngineCommands& commands_;
  Persistence& persistence_;
  std::map<uint32_t, ip::HostStatus> status_;
  std::map<uint32_t, Checkpoint<ip::LeaseCheckpoint>> leases_;  // ports with a DHCP lease
  std::map<uint32_t, Checkpoint<ip::HostCheckpoint>> hosts_;
};

}  // namespace unet::service
