// requests.cc - requests by their numbers, their deadlines, and the numbers that signalling has given them.
#include "ni/service/requests.h"

#include <algorithm>

namespace unet::service {

void Requests::insert(RequestRecord request) {
  if (request.wire) wire_requests_[request.wire_request] = request.id;
  if (request.deadline != ~Nanoseconds{0}) deadlines_.insert({request.deadline, request.id});
  const uint64_t id = request.id;
  requests_.emplace(id, std::move(request));
}

void Requests::add(RequestRecord request) {
  persistence_.changed(JournalKind::request, 0, request.id);
  persistence_.changed(JournalKind::ni_state, 0);
  insert(std::move(request));
}

void Requests::remove(uint64_t id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return;
  deadlines_.erase({at->second.deadline, id});
  if (at->second.wire) wire_requests_.erase(at->second.wire_request);
  requests_.erase(at);
  persistence_.changed(JournalKind::request, 0, id);
}

const RequestRecord* Requests::find(uint64_t id) const {
  const auto at = requests_.find(id);
  return at == requests_.end() ? nullptr : &at->second;
}

std::optional<uint64_t> Requests::of_wire(uint64_t wire_request) const {
  const auto at = wire_requests_.find(wire_request);
  return at == wire_requests_.end() ? std::nullopt : std::optional(at->second);
}

void Requests::resume(RequestRecord request) {
  next_id_ = std::max(next_id_, request.id + 1);
  insert(std::move(request));
}

}  // namespace unet::service
