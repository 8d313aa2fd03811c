// sleeper.cc - eventfds that wake threads.
#include "ipstack/preload/sleeper.h"

#include <sys/eventfd.h>

#include <utility>

#include "ipstack/preload/own_descriptors.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"

namespace unet::preload {

constinit thread_local SleepOfThread SleepOfThread::own{};

int make_event() noexcept { return out_of_the_way(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void ring_event(int event) noexcept {
  const uint64_t one = 1;
  static_cast<void>(!real().write(event, &one, sizeof one));
}

void clear_event(int event) noexcept {
  uint64_t count;
  static_cast<void>(!real().read(event, &count, sizeof count));
}

int poll_for(std::span<pollfd> fds, Nanoseconds time, const sigset_t* mask) {
  const timespec limit = timespec_of(time);
  return Kernel::ppoll(fds.data(), fds.size(), time == kForever ? nullptr : &limit, mask);
}

Sleeper::Sleeper() : event(make_event()) { note_own(event, true); }
Sleeper::Sleeper(int fd) noexcept : event(fd), asleep(true), owns_(false) {}
Sleeper::~Sleeper() {
  if (SleepOfThread::own.who == this) {
    const Runtime::Guard guard;  // its enter() finds that the thread has left its sleep
  }
  if (event < 0 || !owns_) return;
  note_own(event, false);
  real().close(event);
}

bool Sleeper::wake() noexcept {
  if (woken) return false;
  woken = true;
  if (asleep && event >= 0) {
    ring_event(event);
    rung_ = true;
  }
  return true;
}

void Sleeper::sleep_begins() noexcept {
  if (event < 0 && owns_) note_own(event = make_event(), true);
  if (std::exchange(rung_, false)) clear_event(event);
  woken = false;
}

void Sleeper::renew() noexcept {
  forget_own();  // eventfds of other threads, and descriptors of the parent's stack
  if (event >= 0) real().close(event);
  note_own(event = make_event(), true);
  woken = rung_ = false;
}

}  // namespace unet::preload
