// endpoint_requests.h - requests about endpoints, their names and their memory, and the ends of endpoints; used by Service.
//
// An ending endpoint first loses its requests, channels and name; then the engine is told to let go; when it has (EndpointDetached), the
// memory is unmapped and the quota given back. An emulated endpoint, which no engine knows, ends at once.
#pragma once

#include <cstdint>

#include "ni/service/captures.h"
#include "ni/service/channels.h"
#include "ni/service/charges.h"
#include "ni/service/clients.h"
#include "ni/service/endpoint_engines.h"
#include "ni/service/endpoints.h"
#include "ni/service/engine_side.h"
#include "ni/service/operation.h"
#include "ni/service/persistence.h"

namespace unet::service {

class EndpointRequests {
 public:
  EndpointRequests(EngineSide& side, Persistence& persistence, Charges& charges, Clients& clients, Endpoints& endpoints,
                   EndpointEngines& engines, const Operation& operation, Captures& captures, Channels& channels) noexcept
      : side_(side), persistence_(persistence), charges_(charges), clients_(clients), endpoints_(endpoints), engines_(engines),
        operation_(operation), captures_(captures), channels_(channels) {}

  void handle(ClientRecord& client, const control::CreateEndpoint& packet);
  void handle(ClientRecord& client, const control::CreateEmulated& packet);
  void handle(ClientRecord& client, const control::DestroyEndpoint& packet);
  void handle(ClientRecord& client, const control::Bind& packet);
  void handle(ClientRecord& client, const control::Unbind& packet);
  void handle(ClientRecord& client, const control::Expose& packet);
  void handle(ClientRecord& client, const control::PeerRegion& packet);
  void handle(ClientRecord& client, const control::GetDescriptor& packet);

  // Ends a real endpoint: its engine lets go of it. on_detached() when the engine has.
  void destroy(EndpointRecord& endpoint, control::CloseReason reason);
  void on_detached(EndpointRecord& endpoint);

  // A takeover (takeover_endpoints.cc): records of endpoints, their segments, regions and wake descriptors.
  bool save(const JournalKey& key);  // false: it is gone
  Status restore(JournalItem& item);

 private:
  Result<uint32_t> create(ClientRecord& client, const EndpointOptions& options);
  Result<uint32_t> create_emulated(ClientRecord& client, EndpointRecord& carrier);
  Status make_region(ClientRecord& client, EndpointRecord& endpoint, uint64_t wanted);
  void destroy_emulated(EndpointRecord& endpoint, control::CloseReason reason);
  void end_parts(EndpointRecord& endpoint, control::CloseReason reason);

  Status restore_segment(JournalItem& item);
  Status restore_region(JournalItem& item);
  Status restore_wake(JournalItem& item);
  Status restore_endpoint(const JournalItem& item);
  bool restore_emulated(uint32_t id, uint32_t carrier_id);

  EngineSide& side_;
  Persistence& persistence_;
  Charges& charges_;
  Clients& clients_;
  Endpoints& endpoints_;
  EndpointEngines& engines_;
  const Operation& operation_;
  Captures& captures_;
  Channels& channels_;
};

}  // namespace unet::service
