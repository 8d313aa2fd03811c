// held_memory.cc - leases of memfds tell whether a reference is left.
#include "ni/service/held_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace unet::service {

Result<Descriptor> watch_memory(int memory) {
  if (fcntl(memory, F_SETLEASE, F_RDLCK) != 0) return Descriptor();
  fcntl(memory, F_SETOWN, 0);  // a broken lease must not send a signal
  Descriptor watch(::open(("/proc/self/fd/" + std::to_string(memory)).c_str(), O_RDONLY | O_CLOEXEC));
  if (watch.valid() || (errno != EMFILE && errno != ENFILE)) return watch;
  return fail(Errc::out_of_memory, "the network interface cannot watch shared memory (" +
                                       std::error_code(errno, std::system_category()).message() +
                                       "): raise its limit of open files (ulimit -n)");
}

bool is_held(int watch) noexcept {
  if (fcntl(watch, F_SETLEASE, F_WRLCK) != 0) return errno == EAGAIN;
  fcntl(watch, F_SETLEASE, F_UNLCK);
  return false;
}

void HeldMemory::scan_user(uid_t user, OfUser& entries, uint32_t count, const Released& released) {
  for (size_t left = std::min<size_t>(count, entries.size()); left != 0; --left) {
    Entry entry = std::move(entries.front());
    entries.pop_front();
    std::erase_if(entry.watches, [](const Descriptor& watch) { return !is_held(watch.get()); });
    if (entry.watches.empty()) released(user, entry);
    else entries.push_back(std::move(entry));
  }
}

void HeldMemory::scan(uint32_t count, const Released& released) {
  for (auto& [user, entries] : users_) scan_user(user, entries, count, released);
  std::erase_if(users_, [](const auto& each) { return each.second.empty(); });
}

void HeldMemory::scan(uid_t user, uint32_t count, const Released& released) {
  const auto at = users_.find(user);
  if (at == users_.end()) return;
  scan_user(user, at->second, count, released);
  if (at->second.empty()) users_.erase(at);
}

const HeldMemory::Entry& HeldMemory::add(uid_t user, const Usage& usage, std::vector<Descriptor> watches) {
  return users_[user].emplace_back(Entry{next_id_++, usage, std::move(watches)});
}

void HeldMemory::resume(uid_t user, Entry entry) {
  next_id_ = std::max(next_id_, entry.id + 1);
  users_[user].push_back(std::move(entry));
}

}  // namespace unet::service
