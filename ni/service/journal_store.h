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
  static constexpr size_t kPendingMax = kRecordsMax;  // a step may change every record

  // Takes items from the network interface. With `last`, the whole step takes effect; its orders are appended to `orders`. False: the items
  // exceed the maxima.
  bool take(std::vector<JournalItem> items, bool last, std::vector<JournalItem>& orders);
  // The network interface is gone: drops its unfinished step.
  void forget_pending() noexcept { pending_.clear(); }
  // Removes all records and closes their descriptors.
  void clear() noexcept;

  // Position of send_some() in the records.
  struct Progress {
    std::optional<JournalKey> next;  // none: the first
    bool all_added = false;
  };
  // Sends all records as one step, in order of the keys, as far as the other end takes them without waiting (JournalLink::send_now). Until
  // all are sent, no record may change.
  Result<JournalLink::Sent> send_some(JournalLink& to, Progress& progress) const;

  // The descriptor that goes with a record; -1 if there is none.
  int descriptor_of(const JournalKey& key, size_t index) const noexcept;
  size_t size() const noexcept { return records_.size(); }
  // Whether a record of that kind exists.
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
