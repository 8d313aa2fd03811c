// persistence.cc - room at the supervisor, packets to clients, and answered requests.
#include "ni/service/persistence.h"

#include <array>
#include <cstring>
#include <string>

namespace unet::service {
namespace {

constexpr uint64_t kIdsAhead = 4096;  // one record reserves so many ids

}  // namespace

void Persistence::stop() {
  journal_->order(JournalOp::stop);
  journal_->commit();
  journal_.reset();  // the supervisor can still read its last packets
}

Status Persistence::takes(size_t descriptors) const {
  if (!active()) return {};
  if (!journal_->has_room_for_records()) {
    return fail(Errc::quota_exceeded, "the supervisor of this network interface holds as many records as it may, which are " +
                                          std::to_string(journal_->records_max()) + ": end what is not needed");
  }
  if (descriptors == 0 || journal_->has_room(descriptors)) return {};
  return fail(Errc::quota_exceeded, "the supervisor of this network interface holds as many descriptors as its limit of open files allows "
                                    "(" + std::to_string(journal_->descriptors_max()) +
                                        "): raise the limit (ulimit -n, LimitNOFILE=), or end what is not needed");
}

Status Persistence::takes_client() const {
  if (!active() || (journal_->has_room(1, true) && journal_->has_room_for_records())) return {};
  return takes(journal_->descriptors_max());
}

PacketSocket::Outcome Persistence::send(ClientRecord& client, Bytes packet, std::span<const int> descriptors) {
  if (!descriptors.empty() && !journal_->has_room(descriptors.size(), true)) return PacketSocket::Outcome::no_descriptors;
  std::array<std::byte, control::kPacketMax> room;
  std::memcpy(room.data(), packet.data(), packet.size());
  control::Header header{};
  std::memcpy(&header, room.data(), sizeof header);
  if (header.op >= control::Op::connect_request) {
    header.cookie = ++client.events_numbered;
    std::memcpy(room.data(), &header, sizeof header);
    changed(JournalKind::client_state, client.index);
  }
  const Bytes numbered(room.data(), packet.size());
  const PacketSocket::Outcome outcome = client.socket.keep(numbered, descriptors, client.waiting_max());
  if (outcome != PacketSocket::Outcome::sent) return outcome;
  journal_->put_bytes({JournalKind::output, client.index, client.outputs++}, numbered, descriptors);
  ++client.uncommitted;
  waiting_.insert(client.index);
  return outcome;
}

void Persistence::flushed(const ClientRecord& client) {
  if (active() && client.outputs - client.socket.packets_waiting() > client.outputs_sent) flushed_.insert(client.index);
}

void Persistence::erase_sent(ClientRecord& client) { erase_outputs(client, client.outputs - client.socket.packets_waiting()); }

void Persistence::erase_outputs(ClientRecord& client, uint64_t up_to) {
  for (; client.outputs_sent < up_to; ++client.outputs_sent) journal_->erase(JournalKind::output, client.index, client.outputs_sent);
}

void Persistence::record_handled(ClientRecord& client, Bytes packet) {
  control::Header header{};
  if (client.dropped || packet.size() < sizeof header) return;
  std::memcpy(&header, packet.data(), sizeof header);
  client.handled_cookie = header.cookie;
  client.handled_op = static_cast<uint32_t>(header.op);
  changed(JournalKind::client_state, client.index);
}

bool Persistence::was_handled(const ClientRecord& client, Bytes packet) {
  control::Header header{};
  if (packet.size() < sizeof header) return false;
  std::memcpy(&header, packet.data(), sizeof header);
  return client.handled_op == static_cast<uint32_t>(header.op) && client.handled_cookie == header.cookie;
}

void Persistence::reserve_ids(uint64_t next) {
  if (next <= reserved_ids_) return;
  reserved_ids_ = next + kIdsAhead;
  changed(JournalKind::ni_state, 0);
}

bool Persistence::has_uncommitted() const noexcept {
  return !changed_.empty() || !waiting_.empty() || !flushed_.empty() || journal_->pending();
}

}  // namespace unet::service
