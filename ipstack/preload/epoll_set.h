// epoll_set.h - an epoll set of a program: which of our sockets are in it, and which of them are ready; descriptors of the kernel's are in
// the kernel's set at the same descriptor. Used under the host's lock.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "ipstack/preload/file.h"

namespace unet::preload {

// A socket in a set, by the descriptor that it was added with.
struct Registration {
  EpollSet* set;
  File* file;
  int fd;
  epoll_event wanted;
  bool listed = false;   // in the set's list of those that may be ready
  bool spent = false;    // EPOLLONESHOT has been told
  bool gone = false;     // it is no more, but still in the list
};

class EpollSet : public Entry {
 public:
  EpollSet() : Entry(Kind::epoll) {}
  ~EpollSet() override;

  // 0, or an errno, as epoll_ctl() has it.
  int add(File& file, int fd, const epoll_event& event);
  int modify(File& file, int fd, const epoll_event& event);
  int remove(File& file, int fd);
  const Registration* find(const File& file, int fd) const noexcept;
  // A file is the kernel's alone now, or is no more.
  static void forget(File& file) noexcept;
  // What happened to a file may be what this one's program waits for.
  void mark(Registration& registration);
  // Events of ours, at most so many. `events_of(File&)`: what is ready.
  template <typename EventsOf>
  int collect(epoll_event* into, int most, EventsOf events_of);

  // Whether collect() would have any.
  template <typename EventsOf>
  bool is_ready(EventsOf events_of) const noexcept {
    return std::any_of(ready_.begin(), ready_.end(), [&](const Registration* each) {
      return !each->gone && !each->spent && (events_of(*each->file) & (each->wanted.events | EPOLLERR | EPOLLHUP)) != 0;
    });
  }
  bool has_ours() const noexcept { return !all_.empty(); }
  std::vector<File*> files() const;
  int kernel_members = 0;               // how many descriptors of the kernel's were added; closing takes them out untold
  std::vector<Sleeper*> sleepers{};     // threads that wait for it
  bool inherited = false;               // from a parent, and not waited with since

 private:
  void list(Registration& registration);
  void drop(Registration& registration) noexcept;

  std::vector<std::unique_ptr<Registration>> all_;
  std::vector<std::unique_ptr<Registration>> gone_;  // that are still listed
  std::deque<Registration*> ready_;     // that may be ready
};

template <typename EventsOf>
int EpollSet::collect(epoll_event* into, int most, EventsOf events_of) {
  int count = 0;
  for (size_t left = ready_.size(); left != 0 && count < most; --left) {
    Registration& each = *ready_.front();
    ready_.pop_front();
    each.listed = false;
    if (each.gone) {
      std::erase_if(gone_, [&](const auto& one) { return one.get() == &each; });
      continue;
    }
    if (each.spent) continue;
    const uint32_t events = events_of(*each.file) & (each.wanted.events | EPOLLERR | EPOLLHUP);
    if (events == 0) continue;
    into[count++] = {.events = events, .data = each.wanted.data};
    if ((each.wanted.events & EPOLLONESHOT) != 0) each.spent = true;
    else if ((each.wanted.events & EPOLLET) == 0) list(each);  // level-triggered: looked at again
  }
  return count;
}

}  // namespace unet::preload
