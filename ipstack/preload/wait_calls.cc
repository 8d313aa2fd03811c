// wait_calls.cc - poll() and select(), of our sockets and of the kernel's descriptors at once.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/forks.h"
#include "ipstack/sockets/sockaddr.h"

using namespace unet::preload;
using unet::Nanoseconds;
using unet::sockets::is_nowhere;

namespace {

// A descriptor of ours among those that a thread waits for.
struct Ours {
  size_t at;
  File* file;
};

// What one call of poll() waits for, split: ours, and the kernel's in an array of their own.
class Waiting {
 public:
  Waiting(pollfd* all, size_t count) : all_(all, count) {
    kernel_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      kernel_[i] = all[i];
      kernel_[i].revents = 0;
      all[i].revents = 0;
      File* const file = Host::get().file(all[i].fd);
      EpollSet* const set = Host::get().table().as<EpollSet>(all[i].fd, Entry::Kind::epoll);
      if (set != nullptr && (set->has_ours() || Host::get().is_open())) {
        ++set->holds;
        sets_.push_back({i, set});
      }
      const bool undecided = file != nullptr && file->is_undecided();
      if (file == nullptr || (!file->is_ours() && !file->lost && !file->waits_back() && !undecided)) {
        asks_kernel_ = asks_kernel_ || all[i].fd >= 0;
        continue;
      }
      if (file->kernel) asks_kernel_ = true;
      else kernel_[i].fd = -1;
      Host::get().serve(*file);
      ++file->holds;
      ours_.push_back({i, file});
    }
  }
  ~Waiting() {
    for (const Ours& each : ours_) {
      --each.file->holds;
      Host::get().let_go(*each.file);
    }
    for (const auto& [at, set] : sets_) {
      --set->holds;
      Host::get().let_go(*set);
    }
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  bool has_ours() const noexcept { return !ours_.empty() || !sets_.empty(); }
  std::span<pollfd> kernel() noexcept { return asks_kernel_ ? std::span<pollfd>(kernel_) : std::span<pollfd>(); }

  // How many are ready, as poll() says it.
  int look(bool at_kernel) {
    if (at_kernel && asks_kernel_) real().poll(kernel_.data(), kernel_.size(), 0);
    for (size_t i = 0; i < all_.size(); ++i) all_[i].revents = kernel_[i].fd < 0 ? short{0} : kernel_[i].revents;
    for (const Ours& each : ours_) {
      if (Host::get().table().find(all_[each.at].fd) != each.file) {
        ask_again(all_[each.at]);
        continue;
      }
      const uint32_t wanted = static_cast<uint16_t>(all_[each.at].events) | POLLERR | POLLHUP;
      all_[each.at].revents = static_cast<short>(all_[each.at].revents | (Host::get().events(*each.file) & wanted));
    }
    for (const auto& [at, set] : sets_) {
      const uint32_t wanted = static_cast<uint16_t>(all_[at].events);
      all_[at].revents = static_cast<short>(all_[at].revents | (Host::get().events(static_cast<const Entry&>(*set)) & wanted));
    }
    return static_cast<int>(std::count_if(all_.begin(), all_.end(), [](const pollfd& each) { return each.revents != 0; }));
  }
  // True: there is no network interface yet for one of them.
  bool wait_back() {
    bool more = false;
    for (const Ours& each : ours_) more = (each.file->waits_back() && !Forks::adopt(*each.file)) || more;
    return more;
  }
  // Is told of all of them, until it goes.
  class Told {
   public:
    Told(Waiting& waiting, Sleeper& who) : waiting_(waiting), who_(who), polled_(who.polled.size()) {
      for (const Ours& each : waiting.ours_) {
        each.file->sleepers.push_back(&who);
        who.polled.push_back(each.file);
      }
      for (const auto& [at, set] : waiting.sets_) {
        set->pollers.push_back(&who);
        who.polled.push_back(set);
      }
    }
    ~Told() {
      who_.polled.resize(polled_);
      for (const Ours& each : waiting_.ours_) std::erase(each.file->sleepers, &who_);
      for (const auto& [at, set] : waiting_.sets_) std::erase(set->pollers, &who_);
    }
    Told(const Told&) = delete;
    Told& operator=(const Told&) = delete;

   private:
    Waiting& waiting_;
    Sleeper& who_;
    const size_t polled_;  // before: a handler may wait while its thread does
  };

 private:
  // Another thread has closed the descriptor meanwhile; or it is the kernel's now.
  static void ask_again(pollfd& one) { real().poll(&one, 1, 0); }

  std::span<pollfd> all_;
  std::vector<pollfd> kernel_;
  std::vector<Ours> ours_;
  std::vector<std::pair<size_t, EpollSet*>> sets_;
  bool asks_kernel_ = false;
};

bool any_ours(const pollfd* all, size_t count) noexcept {
  if (Host::inside() || is_nowhere(all) || count > static_cast<size_t>(Table::kMax)) return false;
  return std::any_of(all, all + count, [](const pollfd& each) { return Host::get().table().find(each.fd) != nullptr; });
}

// Under the lock. -errno.
int poll_all(Waiting& waiting, Nanoseconds timeout, const sigset_t* mask) {
  Host& host = Host::get();
  host.turn_if_due();
  int ready = waiting.look(true);
  if (ready == 0) {
    host.turn();
    ready = waiting.look(false);
  }
  if (ready != 0) return ready;
  Sleeper& who = Host::this_thread();
  // What the mask lets through is told also to who has no time.
  const auto nothing = [&] { return mask != nullptr && host.is_interrupted(who, *mask) ? -EINTR : 0; };
  if (timeout == 0) return nothing();
  const Nanoseconds until = timeout == kForever ? kForever : host.now() + timeout;
  while (true) {
    Host::Woken woken;
    {
      const Waiting::Told told(waiting, who);
      woken = host.wait(who, waiting.kernel(), host.next_try(waiting.wait_back(), until), mask);
    }
    ready = waiting.look(false);
    if (ready != 0) return ready;
    if (woken == Host::Woken::interrupted) return -EINTR;
    if (host.now() < until) continue;
    ready = waiting.look(true);
    return ready != 0 ? ready : nothing();
  }
}

int poll_with(pollfd* all, nfds_t count, Nanoseconds timeout, const sigset_t* mask) {
  ::pthread_testcancel();
  {
    const Host::Guard guard;
    Waiting waiting(all, count);
    if (waiting.has_ours()) return static_cast<int>(answer(poll_all(waiting, timeout, mask)));
  }
  timespec limit{.tv_sec = static_cast<time_t>(timeout / unet::kSecond), .tv_nsec = static_cast<long>(timeout % unet::kSecond)};
  return real().ppoll(all, count, timeout == kForever ? nullptr : &limit, mask);
}

// select() in terms of poll().
class Selection {
 public:
  Selection(int count, fd_set* read, fd_set* write, fd_set* except) : read_(read), write_(write), except_(except) {
    for (int fd = 0; fd < count; ++fd) {
      const int events = (has(read, fd) ? POLLIN | POLLRDHUP : 0) | (has(write, fd) ? POLLOUT : 0) | (has(except, fd) ? POLLPRI : 0);
      if (events != 0) all_.push_back({.fd = fd, .events = static_cast<short>(events), .revents = 0});
    }
  }
  std::vector<pollfd>& all() noexcept { return all_; }
  bool names_nothing() const noexcept {
    return std::any_of(all_.begin(), all_.end(), [](const pollfd& each) { return (each.revents & POLLNVAL) != 0; });
  }
  // How many bits are set, as select() counts.
  int answer() noexcept {
    int count = 0;
    for (const pollfd& each : all_) {
      count += put(read_, each, POLLIN | POLLRDHUP, POLLIN | POLLRDNORM | POLLHUP | POLLERR);
      count += put(write_, each, POLLOUT, POLLOUT | POLLWRNORM | POLLERR);
      count += put(except_, each, POLLPRI, POLLPRI);
    }
    return count;
  }

 private:
  static bool has(const fd_set* set, int fd) noexcept { return set != nullptr && FD_ISSET(fd, set); }
  static int put(fd_set* set, const pollfd& each, int asked, int ready) noexcept {
    if (set == nullptr || (each.events & asked) == 0 || !FD_ISSET(each.fd, set)) return 0;
    if ((each.revents & ready) != 0) return 1;
    FD_CLR(each.fd, set);
    return 0;
  }

  fd_set *read_, *write_, *except_;
  std::vector<pollfd> all_;
};

bool any_selected(int count, const fd_set* read, const fd_set* write, const fd_set* except) noexcept {
  if (Host::inside() || count < 0) return false;
  for (const fd_set* set : {read, write, except}) {
    if (set != nullptr && is_nowhere(set)) return false;  // of which the kernel's call says so
  }
  const unet::preload::Table& table = Host::get().table();
  for (int fd = 0; fd < std::min(count, FD_SETSIZE); ++fd) {
    for (const fd_set* set : {read, write, except}) {
      if (set != nullptr && FD_ISSET(fd, set) && table.find(fd) != nullptr) return true;
    }
  }
  return false;
}

int select_with(int count, fd_set* read, fd_set* write, fd_set* except, Nanoseconds timeout, const sigset_t* mask) {
  Selection selection(std::min(count, FD_SETSIZE), read, write, except);
  int ready = poll_with(selection.all().data(), selection.all().size(), timeout, mask);
  if (ready < 0) return ready;
  if (selection.names_nothing()) return static_cast<int>(answer(-EBADF));
  return selection.answer();
}

}  // namespace

UNET_PRELOAD int poll(pollfd* all, nfds_t count, int timeout_ms) {
  if (!any_ours(all, count)) return real().poll(all, count, timeout_ms);
  return poll_with(all, count, timeout_ms < 0 ? kForever : static_cast<Nanoseconds>(timeout_ms) * unet::kMillisecond, nullptr);
}

UNET_PRELOAD int ppoll(pollfd* all, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!any_ours(all, count)) return real().ppoll(all, count, timeout, mask);
  if (timeout != nullptr && !is_valid(*timeout)) return static_cast<int>(answer(-EINVAL));
  return poll_with(all, count, timeout == nullptr ? kForever : nanoseconds_of(*timeout), mask);
}

UNET_PRELOAD int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  if (!any_selected(count, read, write, except)) return real().select(count, read, write, except, timeout);
  if (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_usec < 0)) return static_cast<int>(answer(-EINVAL));
  const Nanoseconds wanted = timeout == nullptr ? kForever
                                                : static_cast<Nanoseconds>(timeout->tv_sec) * unet::kSecond +
                                                      static_cast<Nanoseconds>(timeout->tv_usec) * unet::kMicrosecond;
  const Nanoseconds began = Host::get().now();
  const int ready = select_with(count, read, write, except, wanted, nullptr);
  if (timeout != nullptr) {  // Linux says how much of it is left
    const Nanoseconds took = Host::get().now() - began, left = took < wanted ? wanted - took : 0;
    *timeout = {.tv_sec = static_cast<time_t>(left / unet::kSecond),
                .tv_usec = static_cast<suseconds_t>(left % unet::kSecond / unet::kMicrosecond)};
  }
  return ready;
}

UNET_PRELOAD int pselect(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout, const sigset_t* mask) {
  if (!any_selected(count, read, write, except)) return real().pselect(count, read, write, except, timeout, mask);
  if (timeout != nullptr && !is_valid(*timeout)) return static_cast<int>(answer(-EINVAL));
  return select_with(count, read, write, except, timeout == nullptr ? kForever : nanoseconds_of(*timeout), mask);
}

UNET_PRELOAD int __poll_chk(pollfd* all, nfds_t count, int timeout_ms, size_t) { return poll(all, count, timeout_ms); }
UNET_PRELOAD int __ppoll_chk(pollfd* all, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t) {
  return ppoll(all, count, timeout, mask);
}
