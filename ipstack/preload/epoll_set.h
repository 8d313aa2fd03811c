// epoll_set.h - an epoll set of a program: which of our sockets are in it, or other sets, and which of them are ready; descriptors of the
// kernel's are in the kernel's set at the same descriptor. Used under the runtime's lock.
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

// A socket or another set in a set, by the descriptor that it was added with.
struct Registration {
  EpollSet* set;
  Entry* entry;
  int fd;
  epoll_event wanted;
  bool listed = false;   // in the set's list of those that may be ready
  bool spent = false;    // EPOLLONESHOT has been told
  bool gone = false;     // it is no more, but still in the list
  uint64_t told = 0;     // by which call of collect()

  bool is_set() const noexcept { return entry->kind == Entry::Kind::epoll; }
  // The events to report.
  uint32_t asked() const noexcept { return spent ? 0 : wanted.events | EPOLLERR | EPOLLHUP; }
};

// A thread waits in the kernel alone while the set has no member of ours. Each such thread holds this object.
struct KernelWaiters {
  explicit KernelWaiters(EpollSet* waited) noexcept : set(waited) {}
  EpollSet* set;                      // null: it is closed. Used under the runtime's lock.
  std::atomic<bool> recalled{false};  // the set has a member of ours now, and the waits are to end
};

// A set in a set is in the kernel's as well, for the kernel's descriptors in it. The kernel has the registration's address there instead of
// the program's data: so what both say is told once.
class EpollSet : public Entry {
 public:
  EpollSet() : Entry(Kind::epoll) {}
  ~EpollSet() override;

  // 0, or -errno, as epoll_ctl() has it.
  int add(Entry& entry, int fd, const epoll_event& event);
  int modify(Entry& entry, int fd, const epoll_event& event);
  int remove(Entry& entry, int fd);
  Registration* find(const Entry& entry, int fd) const noexcept;
  // The inner set of an event of the kernel; nullptr: it is no set.
  Registration* find(const epoll_event& of_kernel) const noexcept;
  // It is the kernel's alone now, or is no more.
  static void forget(Entry& entry) noexcept;
  // Notifies the threads that wait with this set. True: one was woken.
  bool notify(Registration& registration);
  // Notifies all sets that have the entry; those that have it with EPOLLEXCLUSIVE only until a thread was woken.
  static void notify_sets(const Entry& entry);
  // Events of ours, at most so many. `events_of(Entry&)`: what is ready; `spend(Registration&)`: it is not to be told again.
  template <typename EventsOf, typename Spend>
  int collect(epoll_event* into, int most, EventsOf events_of, Spend spend);
  // Whether the last collect() had it.
  bool is_told(const Registration& registration) const noexcept { return registration.told == collected_; }

  // Wakes another thread, as the woken one does not take the event.
  bool wake_one() noexcept;
  // Whether collect() would have any.
  template <typename EventsOf>
  bool is_ready(EventsOf events_of) const {
    return std::any_of(ready_.begin(), ready_.end(), [&](const Registration* each) {
      return !each->gone && (events_of(*each->entry) & each->asked()) != 0;
    });
  }
  bool has_members_in_stack() const noexcept;
  // A set without members needs no look at our sockets.
  bool has_members() const noexcept { return !all_.empty(); }
  // To be held during a wait in the kernel. The first member of ours that is added ends that wait by an event.
  std::shared_ptr<const KernelWaiters> kernel_waiters() const noexcept { return kernel_waiters_; }
  // Whether the recall event is in the kernel's set, as some wait has not ended yet. After the last wait this removes it.
  bool is_recalling() noexcept;
  // No thread but this one is there any longer, and the recall event is another process's.
  void forget_threads();
  static bool is_recall(const epoll_event& of_kernel) noexcept;
  // The kernel's set has one more member. A thread that waits for ours alone looks at the kernel's set from now on.
  void note_kernel_member() noexcept;
  bool is_waited_for() const noexcept;
  // Sockets in it, and in sets that are.
  std::vector<File*> files() const;
  int kernel_members = 0;               // how many descriptors of the kernel's were added; closing takes them out untold
  KernelPace kernel_pace{};
  bool kernel_waits = false;            // its part was not asked last, as ours had filled all that there was room for
  std::vector<Sleeper*> sleepers{};     // threads that wait for what it tells: one gets it (Waiter)
  std::vector<Sleeper*> pollers{};      // threads that wait until there is something
  bool inherited = false;               // from a parent, and not waited with since

  // A thread waits for what the set tells. If it does not take that, as it is cancelled, another one is woken for it.
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
  std::vector<std::unique_ptr<Registration>> gone_;  // that are still listed
  std::deque<Registration*> ready_;     // that may be ready
  int sets_ = 0;                        // of all_ that are sets
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
