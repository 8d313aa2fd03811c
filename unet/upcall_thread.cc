// upcall_thread.cc - the loop of an endpoint's upcall, and how the thread starts and ends.
#include "unet/upcall_thread.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "unet/base/eventfd_wake.h"
#include "unet/base/time.h"
#include "unet/connection.h"

namespace unet {

UpcallThread::~UpcallThread() { stop(); }

Status UpcallThread::start(int descriptor, std::function<bool()> poll) {
  if (is_running()) return fail(Errc::already_exists, "this endpoint has an upcall already");
  wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return fail_errno("eventfd", errno);
  stop_ = false;
  try {
    thread_.start([this, descriptor, poll = std::move(poll)] { loop(descriptor, poll); });
  } catch (const std::system_error& error) {
    return fail_errno("starting the upcall's thread", error.code().value());
  }
  return {};
}

void UpcallThread::stop() noexcept {
  if (!is_running()) return;
  stop_ = true;
  write_eventfd(wake_.get());
  thread_.join();
  asleep_ = false;
  wake_.reset();
}

void UpcallThread::wake() noexcept {
  if (asleep_) write_eventfd(wake_.get());
}

void UpcallThread::mask() noexcept {
  if (mutex_.try_lock()) return;
  // The thread takes the lock repeatedly, but yields when another thread waits here.
  maskers_.fetch_add(1, std::memory_order_relaxed);
  mutex_.lock();
  maskers_.fetch_sub(1, std::memory_order_relaxed);
}

void UpcallThread::loop(int descriptor, const std::function<bool()>& poll) noexcept {
  while (!stop_.load()) {
    bool asleep = false;
    while (maskers_.load(std::memory_order_relaxed) != 0) ::sched_yield();
    {
      const std::lock_guard masked(mutex_);
      asleep_ = false;
      asleep_ = asleep = poll();
    }
    if (!asleep) continue;
    pollfd wanted[2] = {{.fd = descriptor, .events = POLLIN, .revents = 0}, {.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    ::poll(wanted, 2, static_cast<int>(kLongestSleep / kMillisecond));
    uint64_t count = 0;
    static_cast<void>(!::read(wake_.get(), &count, sizeof count));
  }
}

}  // namespace unet
