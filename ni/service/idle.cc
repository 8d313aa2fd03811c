// idle.cc - sleeping in epoll_wait().
#include "ni/service/idle.h"

#include <array>
#include <cerrno>

#include "ni/service/names.h"
#include "unet/base/epoll.h"

namespace unet::service {

Result<Idle> parse_idle(std::string_view text) {
  if (text == "spin") return Idle::spin;
  if (text == "adaptive") return Idle::adaptive;
  if (text == "block") return Idle::block;
  return fail(Errc::invalid_argument, "idle " + in_quotes(text) + " is none of spin, adaptive, block");
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

int Sleeper::sleep(Nanoseconds timeout) noexcept {
  std::array<epoll_event, 64> ready;
  const int count = wait_epoll(epoll_.get(), ready, timeout);
  if (count < 0) return errno == EINTR ? -1 : 0;
  return count > 0 ? 1 : 0;
}

}  // namespace unet::service
