// journal_store.h - the keeper's side of a journal: the newest value of every record, with its descriptors; used by unetd's keeper.
//
// It does not know what the values mean. Whatever its network interface writes, it costs a bounded amount of memory.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "unet/service/journal_link.h"

namespace unet::service {

class JournalStore {
 public:
  static constexpr size_t kRecordsMax = 1u << 20;
  static constexpr size_t kPendingMax = 1u << 18;

  // Takes items from the network interface. With `last`, all since the last time count; the orders among them are appended to
  // `orders`. False: more than there is room for.
  bool take(std::vector<JournalItem> items, bool last, std::vector<JournalItem>& orders);
  // The network interface is gone: what it did not finish never was.
  void forget_pending() noexcept { pending_.clear(); }
  // Closes everything.
  void clear() noexcept;

  // Everything, in order of the keys, as one.
  Status send_all(JournalLink& to) const;

  // The descriptor that goes with a record; -1 if there is none.
  int descriptor_of(const JournalKey& key, size_t index) const noexcept;
  size_t size() const noexcept { return records_.size(); }

 private:
  struct Record {
    std::vector<std::byte> value;
    std::vector<Descriptor> descriptors;
  };
  std::map<JournalKey, Record> records_;
  std::vector<JournalItem> pending_;
};

}  // namespace unet::service
