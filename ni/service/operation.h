// operation.h - what the operator changes while an NI runs: the policy in force, draining, an upgrade; used by Service and its parts.
//
// The operator is root, or the NI's own user.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "ni/service/clients.h"
#include "ni/service/endpoint_engines.h"
#include "ni/service/persistence.h"
#include "ni/service/service_options.h"

namespace unet::service {

class Operation {
 public:
  // Changes the policy in `options`.
  Operation(ServiceOptions& options, Clients& clients, EndpointEngines& engines, Persistence& persistence) noexcept
      : options_(options), clients_(clients), engines_(engines), persistence_(persistence) {}

  // A user that the kernel cannot name here (Credentials::unknown) operates nothing.
  bool is_operator(const Credentials& who) const noexcept {
    return !who.unknown && (who.uid == 0 || who.uid == options_.own_user);
  }
  Status takes_more() const;  // an error while the NI is being drained
  bool draining() const noexcept { return draining_; }

  void handle(ClientRecord& client, const control::PolicyReload& packet);
  void handle(ClientRecord& client, const control::Drain& packet);
  void handle(ClientRecord& client, const control::Upgrade& packet);
  Status reload_policy();
  void drain(bool on);

  // Tells the client that asked for the upgrade.
  void end_upgrade(const Status& outcome);
  void forget_upgrade_of(const ClientRecord& client);

  // The policy in force counts for the next NI from save_policy() on.
  Status prepare_policy();
  void save_policy();
  Status resume_policy(const JournalItem& item);
  void resume_draining(bool on) noexcept { draining_ = on; }
  bool resume_upgrade(uint32_t client, uint64_t cookie);  // false: another one is under way

 private:
  bool operates(ClientRecord& client, const control::Header& header);  // replies with the error itself

  ServiceOptions& options_;
  Clients& clients_;
  EndpointEngines& engines_;
  Persistence& persistence_;
  bool draining_ = false;
  std::optional<std::pair<uint32_t, uint64_t>> upgrade_;  // client and cookie of the request
  Descriptor policy_text_;
};

}  // namespace unet::service
