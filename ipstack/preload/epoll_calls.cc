// epoll_calls.cc - epoll, of our sockets and of the kernel's descriptors in one set.
#include <algorithm>
#include <climits>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/memory.h"
#include "ipstack/preload/shared/adoption.h"
#include "ipstack/sockets/sockaddr.h"

using namespace unet::preload;
using unet::Nanoseconds;
using unet::sockets::is_nowhere;

namespace {

constexpr int kEventsMax = INT_MAX / static_cast<int>(sizeof(epoll_event));

template <typename Make>
int made(Make make) {
  if (Lock::inside()) return make();
  const Runtime::Guard guard;
  if (!has_memory()) return answer(-ENOMEM);
  const int fd = make();
  if (fd >= 0) Runtime::get().table().put(fd, *new EpollSet);
  return fd;
}

// The ready events of an entry. A thread that waits also accepts from listeners.
uint32_t events_for_waiter(Entry& entry) {
  if (entry.kind == Entry::Kind::socket) Runtime::get().reception().start(static_cast<File&>(entry));
  return Runtime::get().events(entry);
}

// epoll_ctl() in the kernel's set, for a kernel descriptor, or an undecided or dual socket.
int control_kernel(EpollSet& set, int epoll, int operation, int fd, epoll_event* event) {
  const AtKernel noted;
  const int result = Kernel::epoll_ctl(epoll, operation, fd, event);
  if (result == 0 && operation == EPOLL_CTL_ADD) set.note_kernel_member();
  if (result == 0 && operation == EPOLL_CTL_DEL) --set.kernel_members;
  return result;
}

int control(EpollSet& set, int operation, Entry& entry, int fd, const epoll_event* event) {
  if (operation != EPOLL_CTL_DEL && is_nowhere(event)) return -EFAULT;
  if (operation == EPOLL_CTL_ADD && !has_memory()) return -ENOMEM;
  constexpr uint32_t kBesideExclusive = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
  if (operation == EPOLL_CTL_ADD && (event->events & EPOLLEXCLUSIVE) != 0 && (event->events & ~kBesideExclusive) != 0) return -EINVAL;
  switch (operation) {
    case EPOLL_CTL_ADD: return set.add(entry, fd, *event);
    case EPOLL_CTL_MOD: return set.modify(entry, fd, *event);
    case EPOLL_CTL_DEL: return set.remove(entry, fd);
    default: return -EINVAL;
  }
}

// Sets the events that the kernel reports for an inner set.
int tell_kernel(const Registration& inner, int epoll, uint32_t events) {
  epoll_event event{.events = events, .data = {.ptr = const_cast<Registration*>(&inner)}};
  return real().epoll_ctl(epoll, EPOLL_CTL_MOD, inner.fd, &event);
}

// The kernel first checks that sets do not contain each other.
int control_set(EpollSet& set, int epoll, int operation, EpollSet& inner, int fd, epoll_event* event) {
  if (operation == EPOLL_CTL_ADD && !has_memory()) return -ENOMEM;
  int result = control_kernel(set, epoll, operation, fd, event);
  if (result == 0) result = control(set, operation, inner, fd, event);
  if (result == 0 && operation != EPOLL_CTL_DEL) tell_kernel(*set.find(inner, fd), epoll, event->events);
  return result;
}

// Marks a one-shot registration as spent, so that neither part reports it again.
void spend(Registration& registration, int epoll) {
  registration.spent = true;
  if (registration.is_set()) tell_kernel(registration, epoll, 0);
}

// Puts the program's data into the kernel's events of inner sets, and drops events that our part reported. Returns how many remain.
int merge(EpollSet& set, int epoll, epoll_event* events, int count) {
  int left = 0;
  for (int i = 0; i < count; ++i) {
    if (EpollSet::is_recall(events[i])) continue;
    Registration* const inner = set.find(events[i]);
    if (inner != nullptr && set.is_told(*inner)) continue;
    events[left++] = {.events = events[i].events, .data = inner != nullptr ? inner->wanted.data : events[i].data};
    if (inner != nullptr && (inner->wanted.events & EPOLLONESHOT) != 0) spend(*inner, epoll);
  }
  return left;
}

// Collects events of the stack and of the kernel, `most` at most. `at_kernel` false: the kernel has none. If the stack's alone have filled
// the room, half of the room is the kernel's the next time.
int collect(EpollSet& set, int epoll, epoll_event* events, int most, Nanoseconds at, bool at_kernel = true) {
  const auto ours = [&](int room) {
    return set.collect(events, room, events_for_waiter, [&](Registration& each) { spend(each, epoll); });
  };
  const bool known = set.kernel_members > 0;
  const int kept = known && at_kernel && set.kernel_waits ? (most + 1) / 2 : 0;
  const int count = ours(most - kept);
  if (known) set.kernel_waits = count == most;
  if (!at_kernel || count == most) return count;
  // Members that were added without this library are asked for only while the stack has no event.
  const bool asks = known && (count == 0 || kept != 0) ? true : (known || count == 0) && set.kernel_pace.is_due(at);
  if (!asks) return count;
  const int more = real().epoll_wait(epoll, events + count, most - count, 0);
  set.kernel_pace.note(at, more > 0);
  const int all = more > 0 ? count + merge(set, epoll, events + count, more) : count;
  return all != 0 || kept == 0 ? all : ours(most);
}

// A child waits with a set that its parent made. It adopts the listeners and datagram sockets in the set.
void adopt_files(EpollSet& set) {
  Runtime& runtime = Runtime::get();
  set.inherited = false;
  for (File* each : set.files()) {
    for (Registration* one : each->registrations) {
      if (one->set == &set && each->kernel) join_set(*one);  // what became a pair meanwhile; others are there already
    }
    if (!each->inherited || each->inherited->connected) continue;
    if (Adoption::adopt(*each)) runtime.reception().start(*each);
    else set.inherited = true;
  }
}

int wait_for(EpollSet& set, int epoll, epoll_event* events, int most, Nanoseconds timeout, const sigset_t* mask) {
  Runtime& runtime = Runtime::get();
  const Nanoseconds began = runtime.poll_if_due();
  // A call that will sleep anyway asks the kernel by that.
  const bool sleeps = timeout != 0 && runtime.is_idle() && !set.is_ready([&](const Entry& each) { return runtime.events(each); });
  int ready = collect(set, epoll, events, most, began, !sleeps);
  if (ready == 0 && runtime.poll()) ready = collect(set, epoll, events, most, began);
  runtime.record_attempt(ready != 0, timeout != 0);
  if (ready != 0 || timeout == 0) return ready;
  const Nanoseconds until = timeout == kForever ? kForever : began + timeout;
  Sleeper& who = Runtime::this_thread();
  const Hold hold(set);
  bool asks_kernel = false;
  const auto sleep = [&](Nanoseconds limit) {
    pollfd kernel{.fd = epoll, .events = POLLIN, .revents = 0};
    EpollSet::Waiter waiter(set, who);
    const bool recalls = set.is_recalling();  // the kernel's set is then always readable, so it is asked at times
    const std::span<pollfd> theirs(&kernel, recalls ? size_t{0} : size_t{1});
    if (recalls) limit = std::min(limit, runtime.now() + unet::kMillisecond);
    const Runtime::Woken woken = runtime.wait(who, theirs, runtime.next_try(set.inherited, limit), mask, set.kernel_members > 0);
    waiter.take();
    if (kernel.revents != 0) set.kernel_pace.expect();
    asks_kernel = recalls || woken != Runtime::Woken::timed_out || kernel.revents != 0;
    return woken;
  };
  const auto found = static_cast<int>(runtime.block(until, false, sleep, [&] {
    if (set.inherited) adopt_files(set);
    ready = collect(set, epoll, events, most, runtime.now(), asks_kernel);
    return ready != 0 ? ready : -EAGAIN;
  }));
  return found == -EAGAIN ? 0 : found;
}

int wait_in_kernel(int epoll, epoll_event* events, int most, Nanoseconds timeout, const sigset_t* mask) {
  const timespec limit{.tv_sec = static_cast<time_t>(timeout / unet::kSecond), .tv_nsec = static_cast<long>(timeout % unet::kSecond)};
  return real().epoll_pwait2(epoll, events, most, timeout == kForever ? nullptr : &limit, mask);
}

// This thread waits in the kernel no longer. Another thread may have closed `epoll`: it becomes a number that the set has now.
void end_recalled_wait(std::shared_ptr<const KernelWaiters>& waiters, int& epoll) {
  const ErrnoStays stays;
  const Runtime::Guard guard;
  EpollSet* const set = waiters->set;
  waiters.reset();
  if (set != nullptr) static_cast<void>(set->is_recalling());
  if (set != nullptr && !set->fds.empty()) epoll = set->fds.front();
}

// Waits with a set. While a set has no member of the stack, the thread waits in the kernel alone, without the lock, and not by block():
// nothing of the stack can end this wait. The first such member ends it by an event in the kernel's set (KernelWaiters).
int wait_with(int epoll, epoll_event* events, int most, Nanoseconds timeout, const sigset_t* mask) {
  ::pthread_testcancel();
  const bool ends = timeout != 0 && timeout != kForever;
  const Nanoseconds until = ends ? Runtime::get().now() + timeout : 0;
  while (true) {
    std::shared_ptr<const KernelWaiters> waiters;
    {
      const Runtime::Guard guard;
      auto* const set = Runtime::get().table().as<EpollSet>(epoll, Entry::Kind::epoll);
      if (set != nullptr && set->inherited) adopt_files(*set);
      if (set != nullptr && (set->has_members() || set->is_recalling())) {
        if (most <= 0 || most > kEventsMax) return answer(-EINVAL);
        if (is_nowhere(events)) return answer(-EFAULT);
        return answer(wait_for(*set, epoll, events, most, timeout, mask));
      }
      if (set != nullptr) waiters = set->kernel_waiters();
    }
    const int count = wait_in_kernel(epoll, events, most, timeout, mask);
    if (waiters != nullptr && waiters->recalled) [[unlikely]] end_recalled_wait(waiters, epoll);
    if (count <= 0) return count;
    const int told = static_cast<int>(std::remove_if(events, events + count, EpollSet::is_recall) - events);
    if (told != 0) return told;
    if (ends) timeout = until - std::min(until, Runtime::get().now());
  }
}

}  // namespace

UNET_PRELOAD int epoll_create(int size) noexcept {
  return made([=] { return real().epoll_create(size); });
}
UNET_PRELOAD int epoll_create1(int flags) noexcept {
  return made([=] { return real().epoll_create1(flags); });
}

UNET_PRELOAD int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  if (epoll_of(epoll) == nullptr) return real().epoll_ctl(epoll, operation, fd, event);
  const Runtime::Guard guard;
  auto* const set = Runtime::get().table().as<EpollSet>(epoll, Entry::Kind::epoll);
  if (set == nullptr) return real().epoll_ctl(epoll, operation, fd, event);
  File* const file = Runtime::get().file(fd);
  if (file == nullptr) {
    auto* const inner = Runtime::get().table().as<EpollSet>(fd, Entry::Kind::epoll);
    return answer(inner == nullptr ? control_kernel(*set, epoll, operation, fd, event)
                                   : control_set(*set, epoll, operation, *inner, fd, event));
  }
  // An undecided socket is in both sets, until its backend is chosen.
  const int wrong = file->kernel ? control_kernel(*set, epoll, operation, fd, event) : 0;
  if (wrong < 0) return answer(wrong);
  Runtime::get().reception().start(*file);
  return answer(control(*set, operation, *file, fd, event));
}

UNET_PRELOAD int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  return epoll_pwait(epoll, events, most, timeout_ms, nullptr);
}

UNET_PRELOAD int epoll_pwait(int epoll, epoll_event* events, int most, int timeout_ms, const sigset_t* mask) {
  if (epoll_of(epoll) == nullptr) return real().epoll_pwait(epoll, events, most, timeout_ms, mask);
  return wait_with(epoll, events, most, timeout_ms < 0 ? kForever : static_cast<Nanoseconds>(timeout_ms) * unet::kMillisecond, mask);
}

UNET_PRELOAD int epoll_pwait2(int epoll, epoll_event* events, int most, const timespec* timeout, const sigset_t* mask) {
  if (epoll_of(epoll) == nullptr) return real().epoll_pwait2(epoll, events, most, timeout, mask);
  if (timeout != nullptr && !is_valid(*timeout)) return answer(-EINVAL);
  const Nanoseconds limit = timeout == nullptr ? kForever : nanoseconds_of(*timeout);
  return wait_with(epoll, events, most, limit, mask);
}
