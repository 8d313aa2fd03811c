// epoll.h - waiting on an epoll set with time-outs of less than a millisecond; used by endpoints and the NI.
#pragma once

#include <sys/epoll.h>

#include <span>

#include "unet/base/time.h"

namespace unet {

// epoll_wait() for at most `timeout` (~0: no limit): how many of `events` were filled in, or -1 with errno.
int wait_epoll(int epoll, std::span<epoll_event> events, Nanoseconds timeout) noexcept;

}  // namespace unet
