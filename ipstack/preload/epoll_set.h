// epoll_set.h - an epoll set of a program: the sockets of the stack and the sets in it, and those that are ready. Kernel descriptors are in
// the kernel's set, which is at the same descriptor. Used under the runtime's lock.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "ipstack/preload/file.h"
#include "ipstack/preload/kernel_pace.h"

namespace unet::preload {

// A member of a set: a socket or another set, and the descriptor that it was added by.
struct Registration {
  EpollSet* set;
  Entry* entry;
  int fd;
  epoll_event wanted;
  bool listed = false;   // in EpollSet::ready_
  bool spent = false;    // reported, with EPOLLONESHOT
  bool gone = false;     // removed, but still listed
  uint64_t told = 0;     // number of the collect() that reported it last

  bool is_set() const noexcept { return entry->kind == Entry::Kind::epoll; }
  // The events to report.
  uint32_t asked() const noexcept { return spent ? 0 : wanted.events | EPOLLERR | EPOLLHUP; }
};

// Threads that wait in the kernel alone, while the set has no member of the stack. Each such thread holds this object.
struct KernelWaiters {
  explicit KernelWaiters(EpollSet* waited) noexcept : set(waited) {}
  EpollSet* set;                      // null: it is closed. Used under the runtime's lock.
  std::atomic<bool> recalled{false};  // the set has a member of the stack now, so the waits must end
};

// A set in a set is also in the kernel's set, for kernel descriptors in it. The kernel's event has the registration's address instead of
// the program's data, so an event that both parts report is reported once.
class EpollSet : public Entry {
 public:
  EpollSet() : Entry(Kind::epoll) {}
  ~EpollSet() override;

  // 0, or -errno, as epoll_ctl() has it.
  int add(Entry& entry, int fd, const epoll_event& event);
  int modify(Entry& entry, int fd, const epoll_event& event);
  int remove(Entry& entry, int fd);
  Registration* find(const Entry& entry, int fd) const noexcept;
  // The inner set of a kernel event; nullptr: the event is of no set.
  Registration* find(const epoll_event& of_kernel) const noexcept;
  // Removes an entry from all sets.
  static void forget(Entry& entry) noexcept;
  // Notifies the threads that wait with this set. True: one was woken.
  bool notify(Registration& registration);
  // Notifies all sets that have the entry. Sets that have it with EPOLLEXCLUSIVE are notified only until one has woken a thread.
  static void notify_sets(const Entry& entry);
  // Collects events of the stack's members, `most` at most. `events_of(Entry&)` returns ready events. `spend(Registration&)` ends the
  // reports of a one-shot member.
  template <typename EventsOf, typename Spend>
  int collect(epoll_event* into, int most, EventsOf events_of, Spend spend);
  // Whether the last collect() reported it.
  bool is_told(const Registration& registration) const noexcept { return registration.told == collected_; }

  // Wakes another thread, as the woken one does not take the event.
  bool wake_one() noexcept;
  // Whether collect() would find an event.
  template <typename EventsOf>
  bool is_ready(EventsOf events_of) const {
    return std::any_of(ready_.begin(), ready_.end(), [&](const Registration* each) {
      return !each->gone && (events_of(*each->entry) & each->asked()) != 0;
    });
  }
  bool has_members_in_stack() const noexcept;
  // Whether sockets or sets are in it.
  bool has_members() const noexcept { return !all_.empty(); }
  // A thread holds this during its wait in the kernel. The first member of the stack that is added ends that wait by an event.
  std::shared_ptr<const KernelWaiters> kernel_waiters() const noexcept { return kernel_waiters_; }
  // Whether the recall event is in the kernel's set, as some wait has not ended yet. After the last wait this removes it.
  bool is_recalling() noexcept;
  // The other threads are not there, or never return from their calls (Lock::halt_others()).
  void forget_threads();
  static bool is_recall(const epoll_event& of_kernel) noexcept;
  // The kernel's set has one more member. A thread that waits for ours alone looks at the kernel's set from now on.
  void note_kernel_member() noexcept;
  bool is_waited_for() const noexcept;
  // Its sockets, and those of sets in it.
  std::vector<File*> files() const;
  int kernel_members = 0;               // kernel descriptors that were added; closing one takes it out unnoticed
  KernelPace kernel_pace{};
  bool kernel_waits = false;            // the kernel was not asked last, as the stack's events had filled the room
  std::vector<Sleeper*> sleepers{};     // threads in epoll_wait(): an event wakes one (Waiter)
  std::vector<Sleeper*> pollers{};      // threads in poll(): an event wakes all
  bool inherited = false;               // made by a parent, and this process has not waited with it yet

  // A thread in epoll_wait(). If it is cancelled and does not take the event, another thread is woken.
  class Waiter {
   public:
    Waiter(EpollSet& set, Sleeper& who);
    ~Waiter();
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    void take() noexcept;

   private:
    EpollSet& set_;
    Sleeper& who_;
    bool taken_ = false;
  };

 private:
  void list(Registration& registration);
  void recall() noexcept;
  void drop(Registration& registration) noexcept;

  std::vector<std::unique_ptr<Registration>> all_;
  std::vector<std::unique_ptr<Registration>> gone_;  // removed members that are still listed
  std::deque<Registration*> ready_;     // members that may be ready
  int sets_ = 0;                        // how many members are sets
  uint64_t collected_ = 0;              // calls of collect()
  std::shared_ptr<KernelWaiters> kernel_waiters_ = std::make_shared<KernelWaiters>(this);
};

template <typename EventsOf, typename Spend>
int EpollSet::collect(epoll_event* into, int most, EventsOf events_of, Spend spend) {
  int count = 0;
  ++collected_;
  for (size_t left = ready_.size(); left != 0 && count < most; --left) {
    Registration& each = *ready_.front();
    ready_.pop_front();
    each.listed = false;
    if (each.gone) {
      std::erase_if(gone_, [&](const auto& one) { return one.get() == &each; });
      continue;
    }
    const uint32_t events = each.spent ? 0 : events_of(*each.entry) & each.asked();
    if (events == 0) continue;
    into[count++] = {.events = events, .data = each.wanted.data};
    each.told = collected_;
    if ((each.wanted.events & EPOLLONESHOT) != 0) spend(each);
    else if ((each.wanted.events & EPOLLET) == 0) list(each);  // level-triggered: looked at again
  }
  return count;
}

}  // namespace unet::preload
