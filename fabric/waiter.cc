// waiter.cc - see waiter.h.
#include "fabric/waiter.h"

#include <poll.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fabric/endpoint.h"

namespace unet::fabric {
namespace {

constexpr uint32_t kYieldAfter = 256, kYieldEvery = 32;  // empty polls
constexpr int kLooks = 3;         // for a message, after an empty poll
constexpr uint64_t kSoon = 1500;  // cycles between two calls of a program that polls in a loop, and does not yield its core meanwhile

int watch(const Descriptor& set, int descriptor) {
  epoll_event event{.events = EPOLLIN, .data = {}};
  return ::epoll_ctl(set.get(), EPOLL_CTL_ADD, descriptor, &event) == 0 || errno == EEXIST ? 0 : -errno;
}

}  // namespace

int Waiter::open() {
  if (!has_descriptor_) return 0;
  set_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  wakes_ = Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  timer_ = Descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (set_.get() < 0 || wakes_.get() < 0 || timer_.get() < 0) return -FI_EMFILE;
  const int watched = watch(set_, wakes_.get());
  return watched != 0 ? watched : watch(set_, timer_.get());
}

int Waiter::add(Endpoint& endpoint) {
  if (std::find(endpoints_.begin(), endpoints_.end(), &endpoint) != endpoints_.end()) return 0;
  if (has_descriptor_) {
    const int descriptor = endpoint.descriptor();
    if (descriptor < 0) return descriptor;
    if (const int watched = watch(set_, descriptor); watched != 0) return watched;
  }
  endpoints_.push_back(&endpoint);
  return 0;
}

void Waiter::remove(Endpoint& endpoint) noexcept {
  const bool is_known = std::erase(endpoints_, &endpoint) != 0;
  // The set is the same for a forked child and its parent, which still uses it.
  if (!is_known || !has_descriptor_ || !endpoint.domain().is_own_process()) return;
  ::epoll_ctl(set_.get(), EPOLL_CTL_DEL, endpoint.descriptor(), nullptr);
}

uint32_t Waiter::poll() {
  uint32_t arrived = 0;
  for (Endpoint* const endpoint : polled()) arrived += endpoint->progress();
  return arrived;
}

// Whether a call looks for a message for some more time. A program that polls in a loop then spends less time outside, so that it finds a
// message sooner. The first empty poll after a message may only be a check for a second one. Other threads may wait for the lock.
bool Waiter::looks_longer() const noexcept {
  return empty_ != 0 && cycles() - left_ < kSoon && !polled().empty() && !polled().front()->lock().is_needed();
}

void Waiter::progress() {
  uint32_t arrived = poll();
  if (arrived == 0 && looks_longer()) {
    for (int i = 0; i < kLooks && arrived == 0; ++i) {
      spin_pause();
      if (std::any_of(polled().begin(), polled().end(), [](const Endpoint* each) { return each->has_message(); })) arrived = poll();
    }
  }
  empty_ = arrived != 0 ? 0 : empty_ + 1;
  if (empty_ != 0) left_ = cycles();
  if (__builtin_expect(empty_ >= kYieldAfter && empty_ % kYieldEvery == 0, 0)) ::sched_yield();
}

int Waiter::arm() {
  drain();
  Nanoseconds limit = kNever;
  for (Endpoint* const endpoint : polled()) {
    if (all_ != nullptr && has_descriptor_) watch(set_, endpoint->descriptor());
    if (!endpoint->arm(limit)) return -FI_EAGAIN;
  }
  if (!has_descriptor_) return 0;
  // A time-out of 0 would stop the timer.
  const itimerspec at{.it_interval = {}, .it_value = limit == kNever ? timespec{} : timespec_of(std::max<Nanoseconds>(limit, 1))};
  if (::timerfd_settime(timer_.get(), 0, &at, nullptr) != 0) return -errno;
  armed_ = true;
  return 0;
}

void Waiter::wake() noexcept {
  constexpr uint64_t kOne = 1;
  armed_ = false;
  if (has_descriptor_) [[maybe_unused]] const ssize_t written = ::write(wakes_.get(), &kOne, sizeof kOne);
}

void Waiter::drain() noexcept {
  uint64_t count = 0;
  armed_ = false;
  if (has_descriptor_) [[maybe_unused]] const ssize_t drained = ::read(wakes_.get(), &count, sizeof count);
}

void Waiter::sleep(Nanoseconds limit) const noexcept {
  pollfd on{.fd = set_.get(), .events = POLLIN, .revents = 0};
  const timespec time = timespec_of(limit);
  ::ppoll(&on, 1, limit == kNever ? nullptr : &time, nullptr);
}

}  // namespace unet::fabric
