// dead_process_sockets.cc - chooses the table that is read next, and gives its connections to the engine.
#include "ni/service/dead_process_sockets.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "ni/service/journal_records.h"

namespace unet::service {
namespace {

constexpr uint32_t kSlotsPerPoll = 2048;
constexpr uint32_t kOrphansPerPoll = 256;        // connections given to the engine
constexpr uint32_t kOrphansBeforeStart = 4096;   // connections given to a new engine before it resumes

}  // namespace

uint32_t DeadProcessSockets::expect(uint32_t endpoint) {
  commands_.push(0, engine::ExpectOrphans{.endpoint = endpoint, .number = ++last_number_});
  return last_number_;
}

void DeadProcessSockets::add(DeadProcess process) { users_[process.owner()].add(std::move(process)); }

bool DeadProcessSockets::has_claimed(uint64_t owner, const IpClaim& claim) const noexcept {
  const auto at = users_.find(owner);
  return at != users_.end() && at->second.has_claimed(claim);
}

std::optional<uint64_t> DeadProcessSockets::poll() {
  if (commands_.waiting() != 0) return std::nullopt;
  send_inherited(kOrphansPerPoll);
  if (users_.empty() || commands_.waiting() != 0) return std::nullopt;
  auto at = users_.upper_bound(last_owner_);
  if (at == users_.end()) at = users_.begin();
  last_owner_ = at->first;
  DeadProcess& first = at->second.front();
  uint32_t sent = 0;
  for (uint32_t i = 0; i < kSlotsPerPoll && sent < kOrphansPerPoll && commands_.waiting() == 0; ++i) {
    std::optional<engine::OrphanedConnection> orphan;
    const bool more = first.next(orphan);
    if (orphan && hosts_.has_address(orphan->local)) {
      commands_.push(0, engine::AddOrphan{*orphan});
      ++sent;
    }
    if (more) continue;
    commands_.push(0, engine::OrphansAdded{.number = first.number()});
    forget_first(at);
    return last_owner_;
  }
  return std::nullopt;
}

void DeadProcessSockets::forget_first(std::map<uint64_t, DeadProcessesOfUser>::iterator user) {
  const uid_t charged = user->second.front().user();
  std::vector<std::pair<uint64_t, Descriptor>> tables = user->second.front().take_watches();
  user->second.pop_front();
  if (user->second.empty()) users_.erase(user);
  for (auto& [bytes, watch] : tables) {
    std::vector<Descriptor> watches;
    watches.push_back(std::move(watch));
    charges_.give_back(charged, {.memory = bytes}, std::move(watches));
  }
}

void DeadProcessSockets::send_inherited(uint32_t count) {
  for (uint32_t i = 0; i < count && !inherited_.empty() && commands_.waiting() == 0; ++i) {
    commands_.push(0, engine::AddOrphan{inherited_.back()});
    inherited_.pop_back();
  }
}

void DeadProcessSockets::send_inherited(const IpPorts& claims) {
  // The address of a connection may come later, from a router or a server.
  if (hosts_.empty()) return inherited_.clear();
  const auto unclaimed = [&](const engine::OrphanedConnection& each) { return !claims.claims_any(ip::Protocol::kTcp, each.local_port); };
  std::partition(inherited_.begin(), inherited_.end(), unclaimed);
  for (uint32_t i = 0; i < kOrphansBeforeStart && !inherited_.empty(); ++i) {
    commands_.push(0, engine::AddOrphan{inherited_.back()});
    inherited_.pop_back();
  }
}

void DeadProcessSockets::save(std::vector<engine::OrphanedConnection> orphans) {
  std::move(inherited_.begin(), inherited_.end(), std::back_inserter(orphans));
  for (const engine::Command& command : commands_.waiting(0)) {
    if (const auto* const one = std::get_if<engine::AddOrphan>(&command)) orphans.push_back(one->orphan);
  }
  for (auto& [owner, processes] : std::exchange(users_, {})) {
    for (DeadProcess& each : processes.all()) {
      for (std::optional<engine::OrphanedConnection> orphan; each.next(orphan);) {
        if (orphan && hosts_.has_address(orphan->local)) orphans.push_back(*orphan);
      }
    }
  }
  if (orphans.empty() || !persistence_.has_room(1)) return;
  const std::string_view bytes(reinterpret_cast<const char*>(orphans.data()), orphans.size() * sizeof orphans[0]);
  saved_ = create_text("unet-orphans", bytes).value_or(Descriptor{});
  if (!saved_.valid()) return;
  const OrphansValue value{.since = monotonic_now(), .connections = static_cast<uint32_t>(orphans.size()), .spare = 0};
  persistence_.put(JournalKind::orphans, 0, 0, value, {saved_.get()});
  persistence_.journal().commit();
}

bool DeadProcessSockets::restore(const JournalItem& item) {
  OrphansValue value;
  if (!item.read(value)) return false;
  persistence_.erase(JournalKind::orphans, 0, 0);
  const uint64_t now = monotonic_now();
  const uint64_t age_ms = now > value.since ? (now - value.since) / kMillisecond : 0;
  for (uint32_t i = 0; i < std::min(value.connections, kOrphanConnectionsMax); ++i) {
    engine::OrphanedConnection left;
    const auto at = static_cast<off_t>(i * sizeof left);
    if (::pread(item.descriptors[0].get(), static_cast<void*>(&left), sizeof left, at) != static_cast<ssize_t>(sizeof left)) return false;
    if (left.state > engine::OrphanState::time_wait) return false;
    left.age_ms = static_cast<uint32_t>(std::min<uint64_t>(left.age_ms + age_ms, ~uint32_t{0}));
    inherited_.push_back(left);
  }
  return true;
}

}  // namespace unet::service
