// requests.cc - requests, told to their targets, by their numbers, their deadlines, and the numbers that signalling has given them.
#include "ni/service/requests.h"

#include <algorithm>
#include <string>

namespace unet::service {

void Requests::insert(RequestRecord request) {
  if (request.wire) wire_requests_[request.wire_request] = request.id;
  if (request.deadline != ~Nanoseconds{0}) deadlines_.insert({request.deadline, request.id});
  const uint64_t id = request.id;
  endpoints_.at(request.target)->requests.insert(id);
  requests_.emplace(id, std::move(request));
}

Status Requests::offer(RequestRecord request, int32_t uid, int32_t pid, bool same_user) {
  EndpointRecord& target = *endpoints_.at(request.target);
  if (target.requests.size() >= kBacklogMax) {
    return fail(Errc::refused, "the endpoint " + in_quotes(endpoints_.describe(target)) + " has " + std::to_string(kBacklogMax) +
                                   " requests waiting; try again later");
  }
  // Requests may be withdrawn at once, but not the events that told of them: their number must not be the asker's choice.
  ClientRecord& owner = *clients_.at(target.client);
  if (owner.blocked()) {
    return fail(Errc::refused, "the endpoint " + in_quotes(endpoints_.describe(target)) + " does not read its events; try again later");
  }
  auto event = zeroed<control::ConnectRequest>();
  event.header = {.op = control::Op::connect_request, .endpoint = target.id, .cookie = 0};
  event.request = request.id;
  event.peer_uid = uid;
  event.peer_pid = pid;
  event.same_user = same_user ? 1 : 0;
  event.peer.set(request.from);
  persistence_.changed(JournalKind::request, 0, request.id);
  persistence_.changed(JournalKind::ni_state, 0);
  insert(std::move(request));
  clients_.send_packet(owner, event);
  return {};
}

void Requests::remove(uint64_t id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return;
  if (EndpointRecord* target = endpoints_.at(at->second.target); target != nullptr) target->requests.erase(id);
  deadlines_.erase({at->second.deadline, id});
  if (at->second.wire) wire_requests_.erase(at->second.wire_request);
  requests_.erase(at);
  persistence_.changed(JournalKind::request, 0, id);
}

const RequestRecord* Requests::find(uint64_t id) const {
  const auto at = requests_.find(id);
  return at == requests_.end() ? nullptr : &at->second;
}

const RequestRecord* Requests::find(const EndpointRecord& target, uint64_t id) const {
  const RequestRecord* const request = find(id);
  return request != nullptr && request->target == target.id ? request : nullptr;
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
