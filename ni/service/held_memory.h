// held_memory.h - memory of what has ended, while clients still hold it: it stays charged; used by Service.
//
// A client maps its memory, sends the descriptor on, or keeps it in a socket. All of that refers to one open file. The service puts
// a lease on that file before the client gets it. The kernel removes the lease with the last reference of the file. Only the user of the NI
// could remove it before. The service keeps an open file of its own, the watch. The kernel grants the watch an exclusive lease only
// when no other open file of the memory has one, or is open for reading. So one call tells whether any reference is left, and waits
// for no lock that a client can hold.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "ni/service/accounts.h"
#include "unet/mapping.h"

namespace unet::service {

// A watch of `memory`, which is about to be given to a client. None where the kernel has no leases, or there is no /proc: what is charged
// for the memory is given back when the NI ends its use. Errors: out_of_memory (no descriptors).
Result<Descriptor> watch_memory(int memory);

// Another open file of the memory exists, with descriptors or mappings anywhere.
bool is_held(int watch) noexcept;

class HeldMemory {
 public:
  struct Entry {
    uint64_t id = 0;
    Usage usage;
    std::vector<Descriptor> watches;  // of the memory that was held when it was looked at last
  };
  using Released = std::function<void(uid_t user, const Entry& entry)>;

  // Each user's `count` entries that were not looked at for the longest time: those that no client holds are released.
  void scan(uint32_t count, const Released& released);
  // The same of one user.
  void scan(uid_t user, uint32_t count, const Released& released);

  const Entry& add(uid_t user, const Usage& usage, std::vector<Descriptor> watches);
  void resume(uid_t user, Entry entry);
  bool empty() const noexcept { return users_.empty(); }

 private:
  using OfUser = std::deque<Entry>;
  static void scan_user(uid_t user, OfUser& entries, uint32_t count, const Released& released);

  std::map<uid_t, OfUser> users_;  // those with entries
  uint64_t next_id_ = 0;
};

}  // namespace unet::service
