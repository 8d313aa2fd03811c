// runtime_wait.cc - how threads wait for the stack: they spin, sleep, and are woken.
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <utility>

#include "ipstack/preload/small_array.h"
#include "ipstack/preload/thread_specific.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/signals.h"

namespace unet::preload {
namespace {

constexpr int kPollsPerCheck = 8;  // polls of the stack for each look at the clock, at other threads and at the kernel

}  // namespace

constinit thread_local HeldByThread HeldByThread::own{};

int HeldByThread::of(const Entry& entry) noexcept {
  const std::vector<Entry*>& polled = Runtime::this_thread().polled;
  return static_cast<int>(std::count(own.entries, own.entries + std::min(own.count, kMost), &entry) +
                          std::count(polled.begin(), polled.end(), &entry));
}

Sleeper& Runtime::this_thread() noexcept { return ThreadSpecific<Sleeper>::get(); }

namespace {

// For a wait in a signal handler that has interrupted a wait of its thread. The handler's call may take what should wake the outer wait, so
// it wakes that one at its end.
class WakesOuter {
 public:
  explicit WakesOuter(Sleeper& who) noexcept : who_(who), sleeps_(who.asleep) {}
  ~WakesOuter() {
    if (sleeps_) static_cast<void>(who_.wake());
  }
  WakesOuter(const WakesOuter&) = delete;
  WakesOuter& operator=(const WakesOuter&) = delete;

 private:
  Sleeper& who_;
  const bool sleeps_;
};

}  // namespace

Runtime::Woken Runtime::wait(Sleeper& who, std::span<pollfd> kernel, Nanoseconds until, const sigset_t* mask, bool spin_asks) {
  const WakesOuter outer(who);
  who.sleep_begins();
  reception_.resume();
  if (poll()) return Woken::something;
  if (mask == nullptr && spin(who, spin_asks ? kernel : std::span<pollfd>(), until)) return Woken::something;
  if (now() >= until) return !kernel.empty() && poll_for(kernel, 0, nullptr) > 0 ? Woken::something : Woken::timed_out;
  return sleep(who, kernel, until, mask);
}

Runtime::Woken Runtime::wait_for(File& file, std::span<pollfd> kernel, Nanoseconds until) {
  Sleeper& who = this_thread();
  // The caller holds the file (Hold), as another thread may close it meanwhile.
  const Queued queued(file.sleepers, who);
  return wait(who, kernel, next_try(file.waits_back(), until));
}

void Runtime::record_attempt(bool found, bool waits) noexcept {
  if (found) return misses_.note_found();
  if (waits || !misses_.note_miss(now()) || lock_.is_wanted()) return;
  ::sched_yield();
  misses_.note_yield(now());
}

// Polls for a while before a sleep. True: something may have happened.
bool Runtime::spin(const Sleeper& who, std::span<pollfd> kernel, Nanoseconds until) {
  if (spin_.now() == 0) return false;
  const Nanoseconds began = now(), end = std::min(began + spin_.now(), until);
  Nanoseconds yield_at = began + kYieldEvery;
  for (Nanoseconds at = began; at < end; at = now()) {
    for (int i = 0; i < kPollsPerCheck; ++i) {
      if (poll() || who.woken) {
        spin_.note_found();
        return true;
      }
      spin_pause();
    }
    if (lock_.is_wanted()) lock_.yield();
    if (!kernel.empty() && poll_for(kernel, 0, nullptr) > 0) return true;
    if (at < yield_at) continue;
    ::sched_yield();  // the awaited process may need this core
    yield_at = now() + kYieldEvery;
  }
  return false;
}

// The thread sleeps without the lock for the lifetime of this object.
class Runtime::Asleep {
 public:
  Asleep(Runtime& runtime, Sleeper& who) : runtime_(runtime), who_(who) {
    runtime.poller_.add_sleeper(who);
    was_asleep_ = std::exchange(who.asleep, true);
    outermost_ = SleepOfThread::own.at == nullptr;
    if (outermost_) SleepOfThread::own = {__builtin_frame_address(0), &who};
    runtime.leave();
  }
  ~Asleep() {
    runtime_.lock_.take();
    who_.asleep = was_asleep_;
    if (outermost_) SleepOfThread::own = {};
    runtime_.poller_.remove_sleeper(who_);
  }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;

 private:
  Runtime& runtime_;
  Sleeper& who_;
  bool outermost_ = false;  // this is no sleep of a signal handler within another sleep
  bool was_asleep_ = false;
};

// A thread that was asleep calls the library. Either a signal handler calls that has interrupted the sleep: it is below on the stack, or on
// a stack of its own. Or a handler has left the sleep by longjmp(), and this ends what the interrupted calls had begun.
void Runtime::forget_sleep(const void* here) noexcept {
  if (std::less<>()(here, SleepOfThread::own.at)) return;
  stack_t other{};
  ::sigaltstack(nullptr, &other);
  if ((other.ss_flags & SS_ONSTACK) != 0) return;
  Sleeper& who = *std::exchange(SleepOfThread::own, {}).who;
  poller_.remove_sleeper(who);
  who.asleep = false;
  HeldByThread& own = HeldByThread::own;
  std::vector<Entry*> all = std::exchange(who.polled, {});
  all.insert(all.end(), own.entries, own.entries + std::min(own.count, HeldByThread::kMost));
  own.count = 0;
  for (Entry* const each : all) {
    if (each->kind == Entry::Kind::socket) {
      std::erase(static_cast<File*>(each)->sleepers, &who);
    } else {
      EpollSet& set = static_cast<EpollSet&>(*each);
      std::erase(set.pollers, &who);
      if (std::erase(set.sleepers, &who) != 0 && who.woken) set.wake_one();
    }
  }
  for (Entry* const each : all) {
    --each->holds;
    let_go(*each);
  }
}

Runtime::Woken Runtime::sleep(Sleeper& who, std::span<pollfd> kernel, Nanoseconds until, const sigset_t* mask) {
  if (who.woken) return Woken::something;  // while spin() had released the lock
  SmallArray<pollfd> memory(kernel.size() + 2);
  const std::span<pollfd> all = memory.all();
  std::copy(kernel.begin(), kernel.end(), all.begin() + 2);
  all[0] = {.fd = who.event, .events = POLLIN, .revents = 0};
  all[1] = {.fd = -1, .events = POLLIN, .revents = 0};
  const Poller::Sleep how = poller_.begin_sleep(who, proxies_ == nullptr);
  if (how == Poller::Sleep::poll_first) {
    poll();
    return Woken::something;
  }
  const bool watches = how == Poller::Sleep::as_watcher;
  if (watches) all[1].fd = poller_.endpoint();
  const Nanoseconds began = now();
  // The watcher also wakes for timers of the stack.
  Nanoseconds end = watches ? std::min(until, stack().next_event()) : until;
  if (who.event < 0) end = std::min(end, began + Poller::kTick);  // no eventfd could be made, so no thread can wake this one
  int ready = 0;
  bool interrupted;
  {
    const Asleep asleep(*this, who);
    if (!this_call.handled && end > began) ready = poll_for(all, end == kForever ? kForever : end - began, mask);
    interrupted = ready == -EINTR;
  }
  interrupted = interrupted || this_call.handled;  // even if the thread was woken before: the call makes an attempt first
  poller_.end_sleep(watches && ready == 0 && !interrupted);
  spin_.note_sleep(now() - began);
  std::copy(all.begin() + 2, all.end(), kernel.begin());
  poll();
  if (interrupted) return Woken::interrupted;
  return ready == 0 && began < end && end == until && now() >= until ? Woken::timed_out : Woken::something;
}

bool Runtime::let_handlers_run(const sigset_t* mask) {
  const Asleep asleep(*this, this_thread());
  return this_call.handled || (mask != nullptr && poll_for({}, 0, mask) == -EINTR);
}

}  // namespace unet::preload
