// epoll_set.h - the epoll set that an endpoint sleeps on, and the timer that bounds a sleep; used by OwnChannels.
#pragma once

#include <span>

#include "unet/base/result.h"
#include "unet/base/time.h"
#include "unet/mapping.h"

struct epoll_event;

namespace unet {

class EpollSet {
 public:
  // Creates the set. Its descriptors get numbers from `first_descriptor` on.
  Status open(int first_descriptor);
  bool is_open() const noexcept { return set_.valid(); }
  int descriptor() const noexcept { return set_.get(); }

  // Watches `other` edge-triggered, so that an eventfd need not be read to become quiet again. False before open(), and on failure (errno).
  bool add(int other) noexcept;
  bool add_level_triggered(int other) noexcept;
  // Call it before `other` is closed: the peer may have the same open file, so closing would not remove it.
  void remove(int other) noexcept;

  // Makes the set readable after `timeout`; does nothing if no timer can be made.
  void limit_sleep(Nanoseconds timeout) noexcept;
  // Waits at most `timeout`. Returns the number of `events` filled in, or -1 with errno.
  int wait(std::span<epoll_event> events, Nanoseconds timeout) noexcept;

 private:
  int first_descriptor_ = 0;
  Descriptor set_;
  Descriptor timer_;  // created on first use
};

}  // namespace unet
