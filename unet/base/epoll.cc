// epoll.cc - calls epoll_pwait2(2), or epoll_wait(2) on older kernels.
#include "unet/base/epoll.h"

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace unet {

int wait_epoll(int epoll, std::span<epoll_event> events, Nanoseconds timeout) noexcept {
  const auto count = static_cast<int>(events.size());
  const bool forever = timeout == ~Nanoseconds{0};
  const timespec limit{.tv_sec = static_cast<time_t>(timeout / kSecond), .tv_nsec = static_cast<long>(timeout % kSecond)};
  const int ready = ::epoll_pwait2(epoll, events.data(), count, forever ? nullptr : &limit, nullptr);
  if (ready >= 0 || errno != ENOSYS) return ready;
  // Linux before 5.11 takes whole milliseconds: round up, and wait at most a quarter of an hour at a time.
  const Nanoseconds ms = std::min<Nanoseconds>(timeout / kMillisecond + (timeout % kMillisecond != 0 ? 1 : 0), 1'000'000);
  return ::epoll_wait(epoll, events.data(), count, forever ? -1 : static_cast<int>(ms));
}

}  // namespace unet
