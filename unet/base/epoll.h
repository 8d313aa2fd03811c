// epoll.h - waits for an epoll set with timeouts below a millisecond; used by endpoints and the NI.
#pragma once

#include <sys/epoll.h>

#include <span>

#include "unet/base/time.h"

namespace unet {

// Waits at most `timeout` (~0: no limit). Returns the number of `events` filled in, or -1 with errno.
int wait_epoll(int epoll, std::span<epoll_event> events, Nanoseconds timeout) noexcept;

}  // namespace unet
