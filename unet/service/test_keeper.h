// test_keeper.h - a keeper in the hands of a test: it has what network interfaces write down, and starts the next one from it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "unet/base/check.h"
#include "unet/service/journal.h"
#include "unet/service/journal_store.h"

namespace unet::service::test {

class TestKeeper {
 public:
  // For the first network interface, or the next; the one before has ended. `change`: what that one "had".
  std::unique_ptr<Journal> journal(const std::function<void(std::vector<JournalItem>&)>& change = {}) {
    if (link_ != nullptr) keep();
    store_.forget_pending();
    auto pair = std::move(*JournalLink::make_pair());
    auto journal = std::move(*Journal::open(std::move(pair.first)));
    link_ = std::make_unique<JournalLink>(std::move(pair.second));
    if (change) send_changed(change);
    else if (store_.size() != 0) send_all(*link_);
    else UNET_CHECK(link_->send(true));
    UNET_CHECK(journal->inherit());
    return journal;
  }

  // Takes what has been written; often, since who writes waits for it.
  void keep() {
    std::vector<JournalItem> items, orders;
    for (bool last = false; link_->receive(items, last) == JournalLink::Received::items; items.clear()) {
      UNET_CHECK(store_.take(std::move(items), last, orders));
    }
  }
  const JournalStore& store() const { return store_; }

 private:
  void send_all(JournalLink& to) const {
    JournalStore::Progress progress;
    const auto sent = store_.send_some(to, progress);
    UNET_CHECK(sent && *sent == JournalLink::Sent::all);  // what a test keeps fits into the socket
  }
  void send_changed(const std::function<void(std::vector<JournalItem>&)>& change) {
    auto pair = std::move(*JournalLink::make_pair());
    JournalLink from(std::move(pair.first)), to(std::move(pair.second));
    send_all(from);
    std::vector<JournalItem> items;
    for (bool last = false; !last;) UNET_CHECK(to.receive(items, last) == JournalLink::Received::items);
    change(items);
    for (const JournalItem& item : items) {
      std::vector<int> descriptors;
      for (const Descriptor& each : item.descriptors) descriptors.push_back(each.get());
      UNET_CHECK(link_->add(item.op, item.key, item.value, descriptors));
    }
    UNET_CHECK(link_->send(true));
  }

  std::unique_ptr<JournalLink> link_;
  JournalStore store_;
};

}  // namespace unet::service::test
