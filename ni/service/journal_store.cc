// journal_store.cc - a map of records that changes in whole steps.
#include "ni/service/journal_store.h"

#include <iterator>
#include <utility>

namespace unet::service {

bool JournalStore::take(std::vector<JournalItem> items, bool last, std::vector<JournalItem>& orders) {
  if (pending_.size() + items.size() > kPendingMax) return false;
  std::move(items.begin(), items.end(), std::back_inserter(pending_));
  if (!last) return true;
  for (JournalItem& item : std::exchange(pending_, {})) {
    if (item.op == JournalOp::put) {
      if (records_.size() >= kRecordsMax && records_.count(item.key) == 0) return false;
      records_[item.key] = Record{std::move(item.value), std::move(item.descriptors)};
    } else if (item.op == JournalOp::erase) {
      records_.erase(item.key);
    } else {
      orders.push_back(std::move(item));
    }
  }
  return true;
}

void JournalStore::clear() noexcept {
  pending_.clear();
  records_.clear();
}

Result<JournalLink::Sent> JournalStore::send_some(JournalLink& to, Progress& progress) const {
  auto at = progress.next ? records_.lower_bound(*progress.next) : records_.begin();
  for (; !progress.all_added && at != records_.end(); ++at) {
    const auto& [key, record] = *at;
    if (!to.fits(record.value.size(), record.descriptors.size())) {
      progress.next = key;
      const Result<JournalLink::Sent> sent = to.send_now(false);
      if (!sent || *sent != JournalLink::Sent::all) return sent;
    }
    std::vector<int> descriptors;
    for (const Descriptor& each : record.descriptors) descriptors.push_back(each.get());
    if (Status status = to.add(JournalOp::put, key, record.value, descriptors); !status) return tl::unexpected(status.error());
  }
  progress.all_added = true;
  return to.send_now(true);
}

bool JournalStore::holds(JournalKind kind) const noexcept {
  const auto at = records_.lower_bound({kind, 0, 0});
  return at != records_.end() && at->first.kind == kind;
}

int JournalStore::descriptor_of(const JournalKey& key, size_t index) const noexcept {
  const auto at = records_.find(key);
  return at == records_.end() || index >= at->second.descriptors.size() ? -1 : at->second.descriptors[index].get();
}

}  // namespace unet::service
