// wait_calls.cc - poll() and select(), on files and kernel descriptors at once.
#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/small_array.h"
#include "ipstack/preload/kernel_pace.h"
#include "ipstack/preload/shared/adoption.h"
#include "ipstack/sockets/sockaddr.h"

using namespace unet::preload;
using unet::Nanoseconds;
using unet::sockets::is_nowhere;

namespace {

constinit thread_local KernelPace kernel_pace{};

// The descriptors of one poll(): their entries, and those that the kernel must be asked about in an array of their own.
class PollSet {
 public:
  PollSet(pollfd* all, size_t count) : all_(all, count), kernel_(count), entries_(count) {
    Runtime& runtime = Runtime::get();
    for (size_t i = 0; i < count; ++i) {
      const int fd = all[i].fd;
      kernel_[i] = {.fd = fd, .events = all[i].events, .revents = 0};
      entries_[i] = nullptr;
      all[i].revents = 0;
      File* const file = runtime.file(fd);
      EpollSet* const set = runtime.table().as<EpollSet>(fd, Entry::Kind::epoll);
      if (set != nullptr) hold(i, *set);
      const bool undecided = file != nullptr && file->is_undecided();
      if (file == nullptr || (!file->in_stack() && !file->lost && !file->waits_back() && !undecided)) {
        if (fd >= 0) add_kernels(all[i]);
        continue;
      }
      if (file->kernel) add_kernels(all[i]);
      else kernel_[i].fd = -1;
      runtime.reception().start(*file);
      hold(i, *file);
    }
  }
  ~PollSet() {
    each([](Entry& entry) {
      --entry.holds;
      Runtime::get().let_go(entry);
    });
  }
  PollSet(const PollSet&) = delete;
  PollSet& operator=(const PollSet&) = delete;

  bool has_entries() const noexcept { return end_ != 0; }
  std::span<pollfd> kernel() noexcept { return asks_kernel_ ? kernel_.all() : std::span<pollfd>(); }

  // Returns how many are ready. Asks the kernel as often as KernelPace says, and at last if the stack has none.
  int scan_paced(Nanoseconds at) {
    const bool asks = asks_kernel_ && kernel_pace.is_due(at, names_);
    int ready = scan(asks);
    if (!asks_kernel_ || (ready != 0 && !asks)) return ready;
    if (!asks) ready = scan(true);
    kernel_pace.note(at, has_kernels(), names_);
    return ready;
  }
  int scan(bool at_kernel) {
    if (at_kernel && asks_kernel_) real().poll(kernel_.all().data(), all_.size(), 0);
    int ready = 0;
    for (size_t i = 0; i < all_.size(); ++i) {
      all_[i].revents = kernel_[i].fd < 0 ? short{0} : kernel_[i].revents;
      if (entries_[i] != nullptr) scan_entry(all_[i], *entries_[i]);
      ready += all_[i].revents != 0;
    }
    return ready;
  }
  // A socket among them waits for the network interface.
  bool waits_back() {
    bool any = false;
    each([&](Entry& entry) { any = any || waits_back(entry); });
    return any;
  }
  // Adopts these sockets before a scan, as they may be ready then.
  void adopt() {
    each([](Entry& entry) {
      if (waits_back(entry)) static_cast<void>(Adoption::adopt(static_cast<File&>(entry)));
    });
  }
  // Notifications of all entries wake the thread for the lifetime of this object.
  class Waiter {
   public:
    Waiter(PollSet& set, Sleeper& who) : set_(set), who_(who), polled_(who.polled.size()) {
      set.each([&](Entry& entry) {
        sleepers_of(entry).push_back(&who);
        who.polled.push_back(&entry);
      });
    }
    ~Waiter() {
      who_.polled.resize(polled_);
      set_.each([&](Entry& entry) { std::erase(sleepers_of(entry), &who_); });
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    static std::vector<Sleeper*>& sleepers_of(Entry& entry) noexcept {
      return entry.kind == Entry::Kind::socket ? static_cast<File&>(entry).sleepers : static_cast<EpollSet&>(entry).pollers;
    }

    PollSet& set_;
    Sleeper& who_;
    const size_t polled_;  // number of entries before, as a signal handler may wait while its thread does
  };

 private:
  static bool waits_back(const Entry& entry) noexcept {
    return entry.kind == Entry::Kind::socket && static_cast<const File&>(entry).waits_back();
  }
  bool has_kernels() noexcept {
    const auto all = kernel_.all();
    return std::any_of(all.begin(), all.end(), [](const pollfd& each) { return each.fd >= 0 && each.revents != 0; });
  }
  void add_kernels(const pollfd& one) noexcept {
    constexpr uint32_t kMix = 0x9E37'79B1;  // 2^32 over the golden ratio: Knuth's multiplier
    asks_kernel_ = true;
    names_ = (names_ ^ static_cast<uint32_t>(one.fd) ^ static_cast<uint32_t>(one.events) << 20) * kMix;
  }
  void hold(size_t at, Entry& entry) noexcept {
    ++entry.holds;
    entries_[at] = &entry;
    end_ = at + 1;
  }
  template <typename Do>
  void each(Do what) {
    for (Entry* const entry : entries_.all().first(end_)) {
      if (entry != nullptr) what(*entry);
    }
  }
  static void scan_entry(pollfd& one, const Entry& entry) {
    uint32_t wanted = static_cast<uint16_t>(one.events);
    if (entry.kind == Entry::Kind::socket) {
      if (Runtime::get().table().find(one.fd) != &entry) return ask_again(one);
      wanted |= POLLERR | POLLHUP;
    }
    one.revents = static_cast<short>(one.revents | (Runtime::get().events(entry) & wanted));
  }
  // Another thread has closed the descriptor meanwhile, or it is the kernel's now.
  static void ask_again(pollfd& one) { real().poll(&one, 1, 0); }

  const std::span<pollfd> all_;
  SmallArray<pollfd> kernel_;
  SmallArray<Entry*> entries_;  // null: a kernel descriptor
  size_t end_ = 0;              // one more than the place of the last entry
  bool asks_kernel_ = false;
  uint32_t names_ = 0;          // a hash of the kernel's descriptors and wanted events
};

// Takes a span and is not inlined: the C library declares that poll() only writes its entries, so the compiler would warn of a read.
[[gnu::noinline]] bool any_known(std::span<const pollfd> all) noexcept {
  if (Lock::inside() || is_nowhere(all.data()) || all.size() > static_cast<size_t>(Table::kMax)) return false;
  return std::any_of(all.begin(), all.end(), [](const pollfd& each) { return Runtime::get().table().find(each.fd) != nullptr; });
}

// How long a call may wait, and since when it has waited.
struct PollTimeout {
  const Nanoseconds most;
  Nanoseconds since = 0;  // 0: something was ready at once
};

// poll() under the lock. Returns -errno for an error.
int poll_entries(PollSet& set, PollTimeout& time, const sigset_t* mask) {
  Runtime& runtime = Runtime::get();
  const Nanoseconds began = runtime.poll_if_due();
  int ready = set.scan_paced(began);
  if (ready == 0 && runtime.poll()) ready = set.scan(false);
  runtime.record_attempt(ready != 0, time.most != 0);
  if (ready != 0) return ready;
  Sleeper& who = Runtime::this_thread();
  // A call without time reports a signal that the mask lets through, too.
  const auto nothing = [&] { return mask != nullptr && runtime.let_handlers_run(mask) ? -EINTR : 0; };
  if (time.most == 0) return nothing();
  time.since = began;
  const Nanoseconds until = time.most == kForever ? kForever : began + time.most;
  auto woken = Runtime::Woken::something;
  const auto sleep = [&](Nanoseconds limit) {
    const PollSet::Waiter waiter(set, who);
    return woken = runtime.wait(who, set.kernel(), runtime.next_try(set.waits_back(), limit), mask);
  };
  const auto found = static_cast<int>(runtime.block(until, false, sleep, [&] {
    set.adopt();
    ready = set.scan(false);
    return ready != 0 ? ready : -EAGAIN;
  }));
  if (found != -EAGAIN) return found;
  if (woken != Runtime::Woken::timed_out) ready = set.scan(true);
  return ready != 0 ? ready : nothing();
}

// poll() of descriptors that had entries when it began. If none has one by now, nothing of the stack can end the wait. Then the kernel has
// it alone, without the lock, and not by Runtime::block().
int poll_with(pollfd* all, nfds_t count, PollTimeout& time, const sigset_t* mask) {
  ::pthread_testcancel();
  {
    const Runtime::Guard guard;
    PollSet set(all, count);
    if (set.has_entries()) return answer(poll_entries(set, time, mask));
  }
  time.since = Runtime::get().now();
  timespec limit{.tv_sec = static_cast<time_t>(time.most / unet::kSecond), .tv_nsec = static_cast<long>(time.most % unet::kSecond)};
  return real().ppoll(all, count, time.most == kForever ? nullptr : &limit, mask);
}

// The sets of one select(). They have room for a thousand descriptors and mostly few members, so they are scanned by words.
class Sets {
 public:
  Sets(int count, fd_set* read_, fd_set* write_, fd_set* except_) noexcept
      : read(read_), write(write_), except(except_), count_(std::min(count, FD_SETSIZE)) {}

  fd_set *const read, *const write, *const except;

  // How many descriptors are in any of them.
  size_t size() const noexcept {
    int sum = 0;
    for (int at = 0; at < count_; at += NFDBITS) sum += std::popcount(word(at));
    return static_cast<size_t>(sum);
  }
  // Whether `is_it(fd)` is true for a member. Stops at the first one.
  template <typename IsIt>
  bool any(IsIt is_it) const {
    for (int at = 0; at < count_; at += NFDBITS) {
      for (uint64_t left = word(at); left != 0; left &= left - 1) {
        if (is_it(at + std::countr_zero(left))) return true;
      }
    }
    return false;
  }

 private:
  static_assert(NFDBITS == 64);
  // The members among the NFDBITS descriptors from `first` on, of all three sets.
  uint64_t word(int first) const noexcept {
    uint64_t all = 0;
    for (const fd_set* set : {read, write, except}) {
      if (set != nullptr) all |= static_cast<uint64_t>(set->fds_bits[first / NFDBITS]);
    }
    return count_ - first < NFDBITS ? all & ((uint64_t{1} << (count_ - first)) - 1) : all;
  }

  const int count_;
};

// select() in terms of poll().
class Selection {
 public:
  explicit Selection(const Sets& sets) : sets_(sets), all_(sets.size()) {
    sets.any([&](int fd) {
      if (count_ == all_.all().size()) return true;  // another thread has added members
      const int events =
          (has(sets.read, fd) ? POLLIN | POLLRDHUP : 0) | (has(sets.write, fd) ? POLLOUT : 0) | (has(sets.except, fd) ? POLLPRI : 0);
      all_[count_++] = {.fd = fd, .events = static_cast<short>(events), .revents = 0};
      return false;
    });
  }
  std::span<pollfd> all() noexcept { return all_.all().first(count_); }
  bool names_nothing() noexcept {
    return std::any_of(all().begin(), all().end(), [](const pollfd& each) { return (each.revents & POLLNVAL) != 0; });
  }
  // How many bits are set, as select() counts.
  int answer() noexcept {
    int count = 0;
    for (const pollfd& each : all()) {
      count += put(sets_.read, each, POLLIN | POLLRDHUP, POLLIN | POLLRDNORM | POLLHUP | POLLERR | POLLNVAL);
      count += put(sets_.write, each, POLLOUT, POLLOUT | POLLWRNORM | POLLERR | POLLNVAL);
      count += put(sets_.except, each, POLLPRI, POLLPRI | POLLNVAL);
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

  const Sets sets_;
  SmallArray<pollfd> all_;
  size_t count_ = 0;
};

bool any_selected(int count, fd_set* read, fd_set* write, fd_set* except) noexcept {
  if (Lock::inside() || count < 0) return false;
  for (const fd_set* set : {read, write, except}) {
    if (set != nullptr && is_nowhere(set)) return false;  // the kernel's call reports this
  }
  const unet::preload::Table& table = Runtime::get().table();
  return Sets(count, read, write, except).any([&](int fd) { return table.find(fd) != nullptr; });
}

int select_with(int count, fd_set* read, fd_set* write, fd_set* except, PollTimeout& time, const sigset_t* mask) {
  Selection selection(Sets(count, read, write, except));
  const int ready = poll_with(selection.all().data(), selection.all().size(), time, mask);
  if (ready < 0) return ready;
  // A descriptor that another thread closes during the wait counts as ready, as in Linux.
  if (time.since == 0 && selection.names_nothing()) return answer(-EBADF);
  return selection.answer();
}

}  // namespace

UNET_PRELOAD int poll(pollfd* all, nfds_t count, int timeout_ms) {
  if (!any_known({all, count})) return real().poll(all, count, timeout_ms);
  PollTimeout time{timeout_ms < 0 ? kForever : static_cast<Nanoseconds>(timeout_ms) * unet::kMillisecond};
  return poll_with(all, count, time, nullptr);
}

UNET_PRELOAD int ppoll(pollfd* all, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  if (!any_known({all, count})) return real().ppoll(all, count, timeout, mask);
  if (timeout != nullptr && !is_valid(*timeout)) return answer(-EINVAL);
  PollTimeout time{timeout == nullptr ? kForever : nanoseconds_of(*timeout)};
  return poll_with(all, count, time, mask);
}

UNET_PRELOAD int select(int count, fd_set* read, fd_set* write, fd_set* except, timeval* timeout) {
  if (!any_selected(count, read, write, except)) return real().select(count, read, write, except, timeout);
  if (timeout != nullptr && (timeout->tv_sec < 0 || timeout->tv_usec < 0)) return answer(-EINVAL);
  PollTimeout time{timeout == nullptr ? kForever : nanoseconds_of(*timeout)};
  const int ready = select_with(count, read, write, except, time, nullptr);
  if (timeout != nullptr && time.since != 0) {  // Linux stores the time that remains
    const Nanoseconds took = Runtime::get().now() - time.since, left = took < time.most ? time.most - took : 0;
    *timeout = {.tv_sec = static_cast<time_t>(left / unet::kSecond),
                .tv_usec = static_cast<suseconds_t>(left % unet::kSecond / unet::kMicrosecond)};
  }
  return ready;
}

UNET_PRELOAD int pselect(int count, fd_set* read, fd_set* write, fd_set* except, const timespec* timeout, const sigset_t* mask) {
  if (!any_selected(count, read, write, except)) return real().pselect(count, read, write, except, timeout, mask);
  if (timeout != nullptr && !is_valid(*timeout)) return answer(-EINVAL);
  PollTimeout time{timeout == nullptr ? kForever : nanoseconds_of(*timeout)};
  return select_with(count, read, write, except, time, mask);
}

UNET_PRELOAD int __poll_chk(pollfd* all, nfds_t count, int timeout_ms, size_t) { return poll(all, count, timeout_ms); }
UNET_PRELOAD int __ppoll_chk(pollfd* all, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t) {
  return ppoll(all, count, timeout, mask);
}
