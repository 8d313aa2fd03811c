// test_supervisor.h - a supervisor in the hands of a test: it has what network interfaces write down, and starts the next one from it.
#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ni/service/journal.h"
#include "ni/service/journal_store.h"
#include "unet/base/check.h"

namespace unet::service::test {

class TestSupervisor {
 public:
  // For the first network interface, or the next; the one before has ended. `change`: what that one "had".
  std::unique_ptr<Journal> journal(const std::function<void(std::vector<JournalItem>&)>& change = {}) {
    if (link_ != nullptr) keep();
    store_.forget_pending();
    auto pair = std::move(*JournalLink::make_pair());
    auto journal = std::move(*Journal::open(std::move(pair.first)));
    link_ = std::make_unique<JournalLink>(std::move(pair.second));
    bool inherited = false;
    std::thread heir([&] { inherited = static_cast<bool>(journal->inherit()); });  // some of it is more than a socket holds
    if (change) send_changed(change);
    else if (store_.size() != 0) send_all(*link_);
    else UNET_CHECK(link_->send(true));
    heir.join();
    UNET_CHECK(inherited);
    return journal;
  }

  // Takes what has been written. Call it often, as the NI waits for it.
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
    while (*store_.send_some(to, progress) != JournalLink::Sent::all) {
      pollfd writable{.fd = to.descriptor(), .events = POLLOUT, .revents = 0};
      ::poll(&writable, 1, -1);
    }
  }
  void send_changed(const std::function<void(std::vector<JournalItem>&)>& change) {
    auto pair = std::move(*JournalLink::make_pair());
    JournalLink from(std::move(pair.first)), to(std::move(pair.second));
    std::vector<JournalItem> items;
    JournalStore::Progress progress;
    for (bool last = false; !last;) {
      UNET_CHECK(store_.send_some(from, progress));
      while (to.receive(items, last) == JournalLink::Received::items) {
      }
    }
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
