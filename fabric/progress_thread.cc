// progress_thread.cc - see progress_thread.h.
#include "fabric/progress_thread.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "fabric/endpoint.h"
#include "fabric/provider.h"

namespace unet::fabric {
namespace {

constexpr Nanoseconds kLook = 4 * kMillisecond;    // between two looks at endpoints that the program polls
constexpr Nanoseconds kRest = 20 * kMillisecond;   // the longest sleep: the program may have sent something meanwhile
constexpr uint32_t kRoundsMax = 64;                // rounds with work in a row, before the thread pauses
constexpr Nanoseconds kPause = 50 * kMicrosecond;  // gives the lock to the program's threads

// The threads of all domains. Never destroyed, because a domain may outlive every static object.
struct Everyone {
  std::mutex mutex;
  std::vector<ProgressThread*> threads;
};
Everyone& everyone() {
  static auto* const all = new Everyone;
  return *all;
}

}  // namespace

// fork() copies only the thread that calls it. It holds the locks meanwhile: the child finds them free, and no endpoint half changed.
void ProgressThread::before_fork() {
  everyone().mutex.lock();
  for (const ProgressThread* const each : everyone().threads) each->domain_.lock().mutex().lock();
}

void ProgressThread::after_fork() {
  for (const ProgressThread* const each : everyone().threads) each->domain_.lock().mutex().unlock();
  everyone().mutex.unlock();
}

ProgressThread::ProgressThread(Domain& domain) : domain_(domain) {
  [[maybe_unused]] static const int registered = ::pthread_atfork(before_fork, after_fork, after_fork);
  const std::lock_guard held(everyone().mutex);
  everyone().threads.push_back(this);
}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard held(everyone().mutex);
    std::erase(everyone().threads, this);
  }
  if (!thread_.is_running()) return;
  if (!domain_.is_own_process()) {
    thread_.forget();
    return;
  }
  ends_.store(true, std::memory_order_release);
  constexpr uint64_t kOne = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakes_.get(), &kOne, sizeof kOne);
  thread_.join();
}

void ProgressThread::start() noexcept {
  if (thread_.is_running() || !domain_.is_own_process()) return;
  wakes_ = Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  try {
    domain_.lock().need();
    thread_.start_without_signals([this] { run(); });
  } catch (const std::exception& error) {
    warn(FI_LOG_DOMAIN, std::string("the program must make all progress, there is no thread for it: ") + error.what());
  }
}

void ProgressThread::run() noexcept {
  std::vector<pollfd> on;
  for (uint32_t rounds = 0; !ends_.load(std::memory_order_acquire);) {
    Nanoseconds limit = kRest;
    const bool idle = guarded([&]() -> int {
      int all_idle = 1;
      on.assign(1, {.fd = wakes_.get(), .events = POLLIN, .revents = 0});
      const Locked held(domain_.lock());
      for (Endpoint* const endpoint : domain_.endpoints()) {
        if (!endpoint->is_left_alone()) {
          limit = std::min(limit, kLook);
          continue;
        }
        if (!endpoint->arm(limit)) all_idle = 0;
        on.push_back({.fd = endpoint->descriptor(), .events = POLLIN, .revents = 0});
      }
      return all_idle;
    }) == 1;
    rounds = idle ? 0 : rounds + 1;
    if (rounds % kRoundsMax != 0) continue;
    if (!idle) limit = kPause;
    const timespec time = timespec_of(limit);
    ::ppoll(on.data(), idle ? on.size() : 0, &time, nullptr);
  }
}

}  // namespace unet::fabric
