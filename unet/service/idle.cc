// idle.cc - epoll as a place to sleep.
#include "unet/service/idle.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <ctime>

#include "unet/service/names.h"

namespace unet::service {

Result<Idle> parse_idle(std::string_view text) {
  if (text == "spin") return Idle::spin;
  if (text == "adaptive") return Idle::adaptive;
  if (text == "block") return Idle::block;
  return fail(Errc::invalid_argument, "idle " + quoted(text) + " is none of spin, adaptive, block");
}

Result<Sleeper> Sleeper::create() {
  Sleeper sleeper;
  sleeper.epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!sleeper.epoll_.valid()) return fail_errno("epoll_create1", errno);
  return sleeper;
}

Status Sleeper::watch(int descriptor, bool edge) {
  epoll_event event{.events = edge ? EPOLLIN | EPOLLET : EPOLLIN, .data = {}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return fail_errno("epoll_ctl", errno);
  return {};
}

void Sleeper::forget(int descriptor) noexcept { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr); }

bool Sleeper::sleep(Nanoseconds timeout) noexcept {
  std::array<epoll_event, 64> ready;
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(timeout / kSecond);
  limit.tv_nsec = static_cast<long>(timeout % kSecond);
  const bool forever = timeout == ~Nanoseconds{0};
  int n = epoll_pwait2(epoll_.get(), ready.data(), ready.size(), forever ? nullptr : &limit, nullptr);
  if (n < 0 && errno == ENOSYS) {  // Linux before 5.11: whole milliseconds
    const Nanoseconds ms = (timeout + kMillisecond - 1) / kMillisecond;
    n = epoll_wait(epoll_.get(), ready.data(), ready.size(), forever ? -1 : static_cast<int>(ms < 1'000'000 ? ms : 1'000'000));
  }
  return n > 0;
}

}  // namespace unet::service
