// requests.h - requests for channels that wait for an endpoint of this NI to accept or reject them; used by Channels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "ni/service/clients.h"
#include "ni/service/endpoints.h"
#include "ni/service/persistence.h"
#include "ni/service/records.h"

namespace unet::service {

class Requests {
 public:
  static constexpr uint32_t kBacklogMax = 64;  // requests that wait for one endpoint's accept
  static constexpr uint32_t kConnectMsDefault = 5'000;
  static constexpr uint32_t kConnectMsMax = 3'600'000;

  Requests(Persistence& persistence, Clients& clients, const Endpoints& endpoints) noexcept
      : persistence_(persistence), clients_(clients), endpoints_(endpoints) {}

  uint64_t take_id() noexcept { return next_id_++; }
  uint64_t next_id() const noexcept { return next_id_; }
  // Tells the target of the request; the user and process that ask are `uid` and `pid`. Errors: refused.
  Status offer(RequestRecord request, int32_t uid, int32_t pid, bool same_user);
  void remove(uint64_t id);

  const RequestRecord* find(uint64_t id) const;
  const RequestRecord* find(const EndpointRecord& target, uint64_t id) const;
  const RequestRecord& at(uint64_t id) const { return requests_.at(id); }
  std::optional<uint64_t> of_wire(uint64_t wire_request) const;  // by Signalling's id
  const std::map<uint64_t, RequestRecord>& all() const noexcept { return requests_; }

  Nanoseconds next_deadline() const noexcept { return deadlines_.empty() ? ~Nanoseconds{0} : deadlines_.begin()->first; }
  uint64_t first_due() const noexcept { return deadlines_.begin()->second; }

  // After a takeover.
  void resume_ids(uint64_t next) noexcept { next_id_ = next; }
  void resume(RequestRecord request);

 private:
  void insert(RequestRecord request);

  Persistence& persistence_;
  Clients& clients_;
  const Endpoints& endpoints_;
  std::map<uint64_t, RequestRecord> requests_;
  std::set<std::pair<Nanoseconds, uint64_t>> deadlines_;  // of requests from this NI; Signalling has the deadlines of others
  std::unordered_map<uint64_t, uint64_t> wire_requests_;  // Signalling's request -> ours
  uint64_t next_id_ = 1;
};

// How long a client waits for its channel.
inline Nanoseconds connect_timeout(const control::Connect& packet) {
  const uint32_t ms = packet.timeout_ms == 0 ? Requests::kConnectMsDefault : std::min(packet.timeout_ms, Requests::kConnectMsMax);
  return ms * kMillisecond;
}

}  // namespace unet::service
