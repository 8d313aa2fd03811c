// epoll_set.cc - the system calls of an endpoint's epoll set.
#include "unet/epoll_set.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <cerrno>
#include <ctime>

#include "unet/base/epoll.h"

namespace unet {
namespace {

bool add_to(const Descriptor& set, int other, uint32_t events) noexcept {
  epoll_event event{.events = events, .data = {.fd = other}};
  return ::epoll_ctl(set.get(), EPOLL_CTL_ADD, other, &event) == 0;
}

}  // namespace

Status EpollSet::open(int first_descriptor) {
  set_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!set_.valid()) return fail_errno("epoll_create1", errno);
  set_.renumber(first_descriptor);
  first_descriptor_ = first_descriptor;
  return {};
}

bool EpollSet::add(int other) noexcept { return is_open() && add_to(set_, other, EPOLLIN | EPOLLET); }
bool EpollSet::add_level_triggered(int other) noexcept { return is_open() && add_to(set_, other, EPOLLIN); }

void EpollSet::remove(int other) noexcept {
  if (is_open()) ::epoll_ctl(set_.get(), EPOLL_CTL_DEL, other, nullptr);
}

void EpollSet::limit_sleep(Nanoseconds timeout) noexcept {
  if (!timer_.valid()) {
    Descriptor timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    timer.renumber(first_descriptor_);
    if (!timer.valid() || !add(timer.get())) return;  // the next sleep tries again; the timer is never read
    timer_ = std::move(timer);
  }
  const itimerspec limit{.it_interval = {}, .it_value = timespec_of(timeout)};
  ::timerfd_settime(timer_.get(), 0, &limit, nullptr);
}

int EpollSet::wait(std::span<epoll_event> events, Nanoseconds timeout) noexcept { return wait_epoll(set_.get(), events, timeout); }

}  // namespace unet
