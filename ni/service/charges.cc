// charges.cc - memory stays charged until no client holds it, also over a takeover.
#include "ni/service/charges.h"

#include <utility>

#include "ni/service/journal_records.h"

namespace unet::service {

Status Charges::take_memory(const ClientRecord& client, const Usage& wanted) {
  constexpr uint32_t kLooks = 8;  // entries scanned before a refusal, while other clients wait
  const Status status = take(client.who.uid, client.rights, wanted);
  if (status) return status;
  scan_user(client.who.uid, kLooks);
  return take(client.who.uid, client.rights, wanted);
}

void Charges::give_back(uid_t user, const Usage& usage, std::vector<Descriptor> watches) {
  std::erase_if(watches, [](const Descriptor& watch) { return !watch.valid() || !is_held(watch.get()); });
  if (watches.empty()) return give_back(user, usage);
  const HeldMemory::Entry& entry = held_.add(user, usage, std::move(watches));
  if (!persistence_.has_room(entry.watches.size())) return;
  const HeldMemoryValue value{.memory = usage.memory, .user = user, .endpoints = usage.endpoints};
  if (entry.watches.size() == 1) {
    persistence_.put(JournalKind::held_memory, 0, entry.id, value, {entry.watches[0].get()});
  } else {
    persistence_.put(JournalKind::held_memory, 0, entry.id, value, {entry.watches[0].get(), entry.watches[1].get()});
  }
}

void Charges::scan_all() {
  held_.scan(kScanCount, [this](uid_t user, const HeldMemory::Entry& entry) { release(user, entry); });
}

void Charges::scan_user(uid_t user, uint32_t count) {
  held_.scan(user, count, [this](uid_t owner, const HeldMemory::Entry& entry) { release(owner, entry); });
}

void Charges::release(uid_t user, const HeldMemory::Entry& entry) {
  give_back(user, entry.usage);
  persistence_.erase(JournalKind::held_memory, 0, entry.id);
}

bool Charges::resume_held(JournalItem& item) {
  constexpr uint64_t kMost = kSegmentMax + kRegionMax, kIdsMax = uint64_t{1} << 63;
  HeldMemoryValue value;
  const size_t watches = item.descriptors.size();
  if (!item.read(value) || watches == 0 || watches > 2 || item.key.b >= kIdsMax) return false;
  if (value.memory > kMost || value.endpoints > 1) return false;
  const Usage usage{.endpoints = value.endpoints, .memory = value.memory};
  resume(value.user, usage);
  held_.resume(value.user, {item.key.b, usage, std::move(item.descriptors)});
  return true;
}

}  // namespace unet::service
