// charges.h - charges of each user: accounts, and memory that a client still holds after the NI's use; used by Service and its parts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "ni/service/accounts.h"
#include "ni/service/held_memory.h"
#include "ni/service/persistence.h"

namespace unet::service {

class Charges {
 public:
  static constexpr uint32_t kScanCount = 64;  // entries of a user per scan; each takes about two microseconds

  explicit Charges(Persistence& persistence) noexcept : persistence_(persistence) {}

  Status take(uid_t user, const Rights& rights, const Usage& wanted) { return accounts_.take(user, rights, wanted); }
  // Like take(). Before it refuses, it scans the user's held memory, which a client may have released a moment ago.
  Status take_memory(const ClientRecord& client, const Usage& wanted);
  void give_back(uid_t user, const Usage& usage) { accounts_.give_back(user, usage); }
  // Gives back what was charged for memory that the NI uses no longer, once no client holds it.
  void give_back(uid_t user, const Usage& usage, std::vector<Descriptor> watches);

  // Gives back what was charged for held memory that no client holds any longer.
  void scan_all();
  void scan_user(uid_t user, uint32_t count = kScanCount);
  bool holds_memory() const noexcept { return !held_.empty(); }

  // After a takeover.
  void resume(uid_t user, const Usage& usage) { accounts_.resume(user, usage); }
  bool resume_held(JournalItem& item);

  Usage of(uid_t user) const { return accounts_.of(user); }
  const std::map<uid_t, Usage>& all() const noexcept { return accounts_.all(); }

 private:
  void release(uid_t user, const HeldMemory::Entry& entry);

  Persistence& persistence_;
  Accounts accounts_;
  HeldMemory held_;
};

}  // namespace unet::service
