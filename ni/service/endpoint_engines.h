// endpoint_engines.h - which engine serves which endpoint, and what the engines know of users, clients and endpoints; used by Service and
// its parts.
//
// An endpoint stays with one engine from its first channel that is not local. A channel over a wire chooses the engine of its port; of a
// port's several engines, the one with the fewest endpoints. A channel on this NI chooses its peer's engine, or the one with the fewest
// endpoints. Most messages thus never leave an engine. Others go over the link of two engines (ni/engine/link.h): those of a second channel
// over another engine's port, of a channel between endpoints of two engines, and those that arrive at another engine's queue. A single
// engine has every endpoint from its creation.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ni/service/captures.h"
#include "ni/service/clients.h"
#include "ni/service/engine_commands.h"
#include "ni/service/engine_side.h"
#include "ni/service/ports.h"
#include "ni/service/records.h"

namespace unet::service {

class EndpointEngines {
 public:
  // A user's weight and limits, as the engines know them.
  struct Terms {
    uint32_t weight = 1;
    engine::SendLimits limits{};
    bool operator==(const Terms&) const = default;
  };

  EndpointEngines(EngineCommands& commands, EngineSide& side, const Ports& ports, Clients& clients, Captures& captures) noexcept
      : commands_(commands), side_(side), ports_(ports), clients_(clients), captures_(captures) {}

  uint32_t count() const noexcept { return commands_.engines(); }
  uint32_t all() const noexcept { return commands_.all(); }       // bit e: engine e
  uint32_t of(uint32_t port) const noexcept;                       // bit e: engine e has a queue of it
  uint32_t least_busy(uint32_t among = ~uint32_t{0}) const;        // of those whose bits are set, at least one

  // Terms are a user's. If its processes have different ones, by their groups, those of the last one that asked count.
  void tell_terms(const ClientRecord& client);
  Terms terms_of(uid_t user) const;

  // Call when the client's page and wake exist. A single engine knows the client from then on; several from its first endpoint with them.
  Status attach(ClientRecord& client);
  // The client has no endpoints any more. True: no engine knows it any longer; else on_detached() returns true later.
  bool detach(ClientRecord& client);
  bool on_detached(uint32_t engine, ClientRecord& client);

  void assign(EndpointRecord& endpoint, uint32_t engine);
  void assign_one(EndpointRecord& one, EndpointRecord& other);  // the same engine, if none of them has one
  void set_region(const EndpointRecord& endpoint);
  void set_wake(const EndpointRecord& endpoint);
  // Tells the engine to let go of the endpoint. An endpoint without an engine is in take_unserved() later: callers go on with its record.
  void detach(EndpointRecord& endpoint);
  std::vector<uint32_t> take_unserved() { return std::exchange(unserved_, {}); }
  bool has_unserved() const noexcept { return !unserved_.empty(); }
  // The engine has let go of the endpoint.
  void release(const EndpointRecord& endpoint);
  // After a takeover: the one engine goes on with the endpoint. False: the doorbell is another endpoint's.
  bool resume(EndpointRecord& endpoint, uint32_t doorbell);

 private:
  std::optional<uint32_t> take_doorbell(ClientRecord& client, uint32_t& engine);
  void push_client(ClientRecord& client, uint32_t engine);
  void push_endpoint(const EndpointRecord& endpoint, bool resume);

  EngineCommands& commands_;
  EngineSide& side_;
  const Ports& ports_;
  Clients& clients_;
  Captures& captures_;
  std::array<uint32_t, kEnginesMax> served_{};  // endpoints of each engine
  std::vector<uint32_t> unserved_;              // endpoints that ended before any engine knew them
  std::map<uid_t, Terms> terms_;                // of users; without: the default
};

}  // namespace unet::service
