// persistence.h - writes to the journal for the next NI: records, packets to clients, answered requests; used by Service and its parts.
// Without a journal, put(), erase(), changed() and takes() do nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "ni/service/journal.h"
#include "ni/service/packet_socket.h"
#include "ni/service/records.h"

namespace unet::service {

class Persistence {
 public:
  void start(std::unique_ptr<Journal> journal) noexcept { journal_ = std::move(journal); }
  void stop();  // the NI ends, and no NI takes over
  bool active() const noexcept { return journal_ != nullptr; }
  bool lost() const noexcept { return active() && journal_->lost(); }
  Journal& journal() noexcept { return *journal_; }  // active() only

  template <typename T>
  void put(JournalKind kind, uint32_t a, uint64_t b, const T& value, std::initializer_list<int> descriptors = {}) {
    if (active()) journal_->put(kind, a, b, value, descriptors);
  }
  void erase(JournalKind kind, uint32_t a, uint64_t b = 0) {
    if (active()) journal_->erase(kind, a, b);
  }
  // Marks a record as changed: its state at the next commit is written.
  void changed(JournalKind kind, uint32_t a, uint64_t b = 0) {
    if (active()) changed_.insert({kind, a, b});
  }

  // Call before making objects that the supervisor must hold: a supervisor without descriptors would have to end every client. Errors:
  // quota_exceeded.
  Status takes(size_t descriptors) const;
  Status takes_client() const;
  bool has_room(size_t descriptors) const noexcept { return active() && journal_->has_room(descriptors); }

  // Packets to clients wait for the next commit. The next NI repeats those that may not have left, and clients know them by their cookies.
  PacketSocket::Outcome send(ClientRecord& client, Bytes packet, std::span<const int> descriptors);
  void flushed(const ClientRecord& client);  // records that some of its packets may have left
  void erase_sent(ClientRecord& client);     // erases its packets that have left
  void erase_outputs(ClientRecord& client, uint64_t up_to);
  void wait_for_commit(uint32_t client) { waiting_.insert(client); }

  // Records the client's last processed request. It stays in the socket until its answer has left, and the next NI must not process it
  // again.
  void record_handled(ClientRecord& client, Bytes packet);
  static bool was_handled(const ClientRecord& client, Bytes packet);

  // Remote hosts may have seen the ids of signalling below this one.
  void reserve_ids(uint64_t next);
  uint64_t reserved_ids() const noexcept { return reserved_ids_; }

  // The caller writes take_changed(), commits, and flushes take_waiting().
  bool has_uncommitted() const noexcept;
  std::set<uint32_t> take_flushed() { return std::exchange(flushed_, {}); }
  std::set<JournalKey> take_changed() { return std::exchange(changed_, {}); }
  std::set<uint32_t> take_waiting() { return std::exchange(waiting_, {}); }

 private:
  std::unique_ptr<Journal> journal_;  // none: no NI takes over
  std::set<JournalKey> changed_;
  std::set<uint32_t> waiting_;  // clients with packets that wait for the commit
  std::set<uint32_t> flushed_;  // clients with packets in the journal that have left
  uint64_t reserved_ids_ = 0;
};

}  // namespace unet::service
