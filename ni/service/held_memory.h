// held_memory.h - memory of ended objects stays charged while clients still hold it; used by Service.
//
// A client maps its memory, sends the descriptor on, or keeps it in a socket. All of that refers to one open file. The service puts a lease
// on that file before the client gets it. The kernel removes the lease with the last reference of the file. Only the user of the NI could
// remove it before. The service keeps an open file of its own, the watch. The kernel grants the watch an exclusive lease only when no other
// open file of the memory has one, or is open for reading. One call thus tells whether any reference is left, and waits for no lock that a
// client can hold.
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

// Makes a watch of `memory`, before a client gets it. Returns none if the kernel has no leases, or without /proc: then the charge ends with
// the NI's use. Errors: out_of_memory (no descriptors).
Result<Descriptor> watch_memory(int memory);

// Whether another open file of the memory exists, by a descriptor or mapping anywhere.
bool is_held(int watch) noexcept;

class HeldMemory {
 public:
  struct Entry {
    uint64_t id = 0;
    Usage usage;
    std::vector<Descriptor> watches;  // watches of memory that was still held at the last scan
  };
  using Released = std::function<void(uid_t user, const Entry& entry)>;

  // For each user, scans the `count` entries that were scanned least recently, and releases those that no client holds.
  void scan(uint32_t count, const Released& released);
  // Scans the entries of one user.
  void scan(uid_t user, uint32_t count, const Released& released);

  const Entry& add(uid_t user, const Usage& usage, std::vector<Descriptor> watches);
  void resume(uid_t user, Entry entry);
  bool empty() const noexcept { return users_.empty(); }

 private:
  using OfUser = std::deque<Entry>;
  static void scan_user(uid_t user, OfUser& entries, uint32_t count, const Released& released);

  std::map<uid_t, OfUser> users_;  // users with entries
  uint64_t next_id_ = 0;
};

}  // namespace unet::service
