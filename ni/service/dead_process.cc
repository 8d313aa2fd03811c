// dead_process.cc - copies each slot once, and trusts only connections at claimed ports.
#include "ni/service/dead_process.h"

#include <algorithm>
#include <utility>

#include "unet/wire/ip.h"

namespace unet::service {
namespace {

// How the engine ends the connection: as RFC 9293, 3.10.4 if it was closed and all data is acknowledged, else by a reset.
engine::OrphanState orphan_state_of(const SocketRecord& record) noexcept {
  using engine::OrphanState;
  constexpr uint8_t kEnding = SocketFlags::kClosed | SocketFlags::kFinSent;
  if ((record.flags & kEnding) != kEnding) return OrphanState::reset;
  const bool all = record.send_next == record.send_unacknowledged, but_fin = record.send_next - record.send_unacknowledged == 1;
  switch (static_cast<SocketState>(record.state)) {
    case SocketState::fin_wait_1: return but_fin ? OrphanState::fin_wait_1 : OrphanState::reset;
    case SocketState::closing: return but_fin ? OrphanState::closing : OrphanState::reset;
    case SocketState::last_ack: return but_fin ? OrphanState::last_ack : OrphanState::reset;
    case SocketState::fin_wait_2: return all ? OrphanState::fin_wait_2 : OrphanState::reset;
    case SocketState::time_wait: return all ? OrphanState::time_wait : OrphanState::reset;
    default: return OrphanState::reset;
  }
}

}  // namespace

DeadProcess::DeadProcess(uid_t user, uint64_t owner, uint32_t number, std::vector<SharedMemory> tables,
                         const std::vector<IpClaim>& claims)
    : user_(user), owner_(owner), number_(number), tables_(std::move(tables)) {
  for (const IpClaim& claim : claims) {
    if (claim.protocol != ip::Protocol::kTcp) continue;
    for (uint32_t i = 0; i < claim.ports; ++i) claims_[claim.port + i].push_back(claim);
  }
}

std::vector<std::pair<uint64_t, Descriptor>> DeadProcess::take_watches() {
  std::vector<std::pair<uint64_t, Descriptor>> watches;
  for (SharedMemory& table : tables_) watches.emplace_back(table.mapping.size(), std::move(table.watch));
  return watches;
}

bool DeadProcess::next(std::optional<engine::OrphanedConnection>& left) noexcept {
  left.reset();
  if (table_ == tables_.size()) return false;
  const SocketTableView view(tables_[table_].mapping.data(), SocketTableGeometry::of_table(table_));
  if (place_ >= view.used()) {
    ++table_;
    place_ = 0;
    return table_ != tables_.size();
  }
  // The writer is dead, or another process writes without right, so a torn record is handled like any false one.
  SocketRecord record;
  view.slot(place_++).copy(record);
  left = check(record);
  return true;
}

std::optional<engine::OrphanedConnection> DeadProcess::check(const SocketRecord& record) const noexcept {
  const bool synchronized = record.state >= static_cast<uint8_t>(SocketState::syn_received) && record.state < kSocketStates;
  // A connection that had only sent a SYN needs no end: the answer to the SYN is refused.
  if (record.protocol != ip::Protocol::kTcp || !synchronized || (record.flags & SocketFlags::kNear) != 0) return std::nullopt;
  const bool ipv4 = record.local.is_ipv4();
  const bool ends = record.local_port != 0 && record.remote_port != 0 && record.remote.is_ipv4() == ipv4 &&
                    record.remote.is_wire_host(ipv4) && record.local.is_one_host(ipv4) &&
                    !record.remote.is_limited_broadcast();
  if (!ends || !claimed(record)) return std::nullopt;
  return engine::OrphanedConnection{.local = record.local, .remote = record.remote, .local_port = record.local_port,
                                    .remote_port = record.remote_port, .state = orphan_state_of(record),
                                    .timestamps = (record.flags & SocketFlags::kTimestamps) != 0, .send_next = record.send_next,
                                    .receive_next = record.receive_next, .timestamp = record.timestamp,
                                    .timestamp_echo = record.timestamp_echo, .user = owner_};
}

bool DeadProcess::claimed(const SocketRecord& record) const noexcept {
  const auto at = claims_.find(record.local_port);
  if (at == claims_.end()) return false;
  for (const IpClaim& claim : at->second) {
    const bool fits = (claim.local.is_unspecified() || claim.local == record.local) &&
                      (claim.remote.is_unspecified() || claim.remote == record.remote) &&
                      (claim.remote_port == 0 || claim.remote_port == record.remote_port);
    if (fits) return true;
  }
  return false;
}

void DeadProcessesOfUser::add(DeadProcess left) {
  left.for_each_port([this](uint32_t port) { ++ports_[port]; });
  all_.push_back(std::move(left));
}

void DeadProcessesOfUser::pop_front() {
  all_.front().for_each_port([this](uint32_t port) {
    const auto at = ports_.find(port);
    if (--at->second == 0) ports_.erase(at);
  });
  all_.pop_front();
}

bool DeadProcessesOfUser::has_claimed(const IpClaim& claim) const noexcept {
  if (claim.protocol != ip::Protocol::kTcp || ports_.empty()) return false;
  if (claim.port == 0) return true;
  for (uint32_t i = 0; i < std::min<uint32_t>(claim.ports, kIpPortsPerClaimMax); ++i) {
    if (ports_.count(claim.port + i) != 0) return true;
  }
  return false;
}

}  // namespace unet::service
