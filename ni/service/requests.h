// requests.h - requests for channels that wait for an endpoint of this NI to accept or reject them; used by Service.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "ni/service/persistence.h"
#include "ni/service/records.h"

namespace unet::service {

class Requests {
 public:
  explicit Requests(Persistence& persistence) noexcept : persistence_(persistence) {}

  uint64_t take_id() noexcept { return next_id_++; }
  uint64_t next_id() const noexcept { return next_id_; }
  void add(RequestRecord request);
  void remove(uint64_t id);

  const RequestRecord* find(uint64_t id) const;
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
  std::map<uint64_t, RequestRecord> requests_;
  std::set<std::pair<Nanoseconds, uint64_t>> deadlines_;  // of requests from this NI; Signalling has the deadlines of others
  std::unordered_map<uint64_t, uint64_t> wire_requests_;  // Signalling's request -> ours
  uint64_t next_id_ = 1;
};

}  // namespace unet::service
