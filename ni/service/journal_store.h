// journal_store.h - the supervisor's side of a journal: the newest value of every record, with its descriptors; used by unetd's supervisor.
//
// It does not know what the values mean. Whatever its network interface writes, it costs a bounded amount of memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "ni/service/journal.h"

namespace unet::service {

class JournalStore {
 public:
  static constexpr size_t kRecordsMax = kJournalRecordsMax;
  static constexpr size_t kPendingMax = kRecordsMax;  // a step that ends or changes each of them

  // Takes items from the network interface. With `last`, all since the last time count; the orders among them are appended to
  // `orders`. False: more than there is room for.
  bool take(std::vector<JournalItem> items, bool last, std::vector<JournalItem>& orders);
  // The network interface is gone: what it did not finish never was.
  void forget_pending() noexcept { pending_.clear(); }
  // Closes everything.
  void clear() noexcept;

  // How far a send of everything has come.
  struct Progress {
    std::optional<JournalKey> next;  // none: the first
    bool all_added = false;
  };
  // Sends everything, in order of the keys, as one: as much of it as the other end takes without waiting (JournalLink::send_now). Until
  // that is all, nothing may change.
  Result<JournalLink::Sent> send_some(JournalLink& to, Progress& progress) const;

  // The descriptor that goes with a record; -1 if there is none.
  int descriptor_of(const JournalKey& key, size_t index) const noexcept;
  size_t size() const noexcept { return records_.size(); }
  // There is a record of that kind.
  bool holds(JournalKind kind) const noexcept;

 private:
  struct Record {
    std::vector<std::byte> value;
    std::vector<Descriptor> descriptors;
  };
  std::map<JournalKey, Record> records_;
  std::vector<JournalItem> pending_;
};

}  // namespace unet::service
