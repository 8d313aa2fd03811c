// runtime_wait.cc - how threads wait for the stack: they spin, sleep, and are woken; and the helper that looks after it meanwhile.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <utility>

#include "ipstack/preload/few.h"
#include "ipstack/preload/identity.h"
#include "ipstack/preload/last_thread.h"
#include "ipstack/preload/of_thread.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/shared/socket_proxies.h"
#include "ipstack/preload/signals.h"
#include "unet/connection.h"

namespace unet::preload {
namespace {

constexpr int kPollsPerCheck = 8;                         // at the clock, at who else wants the lock, and at the kernel's descriptors
constexpr Nanoseconds kSpinLeast = 2 * kMicrosecond;
constexpr Nanoseconds kWorthSpinning = 60 * kMicrosecond;  // what came so soon after going to sleep would have been worth a longer spin
constexpr Nanoseconds kIdle = 10 * kMillisecond;  // who sleeps for so long need not spin before the next time
constexpr Nanoseconds kYieldEvery = 5 * kMicrosecond;
// The helper looks so often while the program is busy elsewhere, for so many times; then more seldom; then it rests, until something comes.
// While a thread watches, what comes is not to wake the helper, too: who takes it in does.
constexpr Nanoseconds kTick = kMillisecond, kSlowTick = 10 * kMillisecond;
constexpr int kTicks = 20, kSlowTicks = 10;
constexpr Nanoseconds kUnderWay = kSecond / 10;
constexpr Nanoseconds kLinger = 60 * kSecond;    // of an orphan process, for a peer that has not acknowledged all and is silent
constexpr Nanoseconds kRest = kSecond / 4;       // while there is no network interface
constexpr Nanoseconds kLongRest = 10 * kSecond;  // while another thread watches

timespec timespec_of(Nanoseconds time) noexcept {
  return {.tv_sec = static_cast<time_t>(time / kSecond), .tv_nsec = static_cast<long>(time % kSecond)};
}

int poll_for(std::span<pollfd> fds, Nanoseconds time, const sigset_t* mask) {
  const timespec limit = timespec_of(time);
  return real().ppoll(fds.data(), fds.size(), time == kForever ? nullptr : &limit, mask);
}

void clear(int event) noexcept {
  uint64_t count;
  static_cast<void>(!real().read(event, &count, sizeof count));
}

void ring(int event) noexcept {
  const uint64_t one = 1;
  static_cast<void>(!real().write(event, &one, sizeof one));
}

// What a program put at its number would be woken instead.
int event_out_of_the_way() noexcept { return out_of_the_way(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

}  // namespace

constinit thread_local SleepOfThread SleepOfThread::own{};
constinit thread_local HeldByThread HeldByThread::own{};

int HeldByThread::of(const Entry& entry) noexcept {
  const std::vector<Entry*>& polled = Runtime::this_thread().polled;
  return static_cast<int>(std::count(own.entries, own.entries + std::min(own.count, kMost), &entry) +
                          std::count(polled.begin(), polled.end(), &entry));
}

Sleeper::Sleeper() : event(event_out_of_the_way()) { note_own(event, true); }
Sleeper::Sleeper(int fd) noexcept : event(fd), asleep(true), owns_(false) {}
Sleeper::~Sleeper() {
  if (SleepOfThread::own.who == this) {
    const Runtime::Guard guard;  // which finds that it does not sleep any longer
  }
  if (event < 0 || !owns_) return;
  note_own(event, false);
  real().close(event);
}

bool Sleeper::wake() noexcept {
  if (woken) return false;
  woken = true;
  if (asleep && event >= 0) {
    ring(event);
    rung_ = true;
  }
  return true;
}

void Sleeper::sleep_begins() noexcept {
  if (event < 0 && owns_) note_own(event = event_out_of_the_way(), true);
  if (std::exchange(rung_, false)) clear(event);
  woken = false;
}

void Sleeper::renew() noexcept {
  forget_own();  // other threads are not there, and the stack is about to go
  if (event >= 0) real().close(event);
  note_own(event = event_out_of_the_way(), true);
  woken = rung_ = false;
}

Sleeper& Runtime::this_thread() noexcept { return OfThread<Sleeper>::get(); }

namespace {

// A handler waits between two steps of its thread's own wait, and takes away what was to wake that.
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
  if (!given_up_.empty()) [[unlikely]] resume_given_up();
  if (poll()) return Woken::something;
  if (mask == nullptr && spin(who, spin_asks ? kernel : std::span<pollfd>(), until)) return Woken::something;
  if (now() >= until) return !kernel.empty() && poll_for(kernel, 0, nullptr) > 0 ? Woken::something : Woken::timed_out;
  return sleep(who, kernel, until, mask);
}

Runtime::Woken Runtime::wait_for(File& file, std::span<pollfd> kernel, Nanoseconds until) {
  Sleeper& who = this_thread();
  // Another thread may close it meanwhile, and the file be no more: who waits then holds it (Hold).
  const Queued queued(file.sleepers, who);
  return wait(who, kernel, next_try(file.waits_back(), until));
}

void Runtime::yield_core() noexcept {
  constexpr Nanoseconds kAgain = 20 * kMicrosecond;
  const Nanoseconds at = now();
  if (at - std::exchange(asked_at_, at) > kAgain) asks_since_ = at;
  if (at - asks_since_ < kYieldEvery || wanting_.load(std::memory_order_relaxed) != 0) return;
  ::sched_yield();
  asked_at_ = asks_since_ = now();
}

// True: something may have happened.
bool Runtime::spin(const Sleeper& who, std::span<pollfd> kernel, Nanoseconds until) {
  if (spin_ == 0) return false;
  const Nanoseconds began = now(), end = std::min(began + spin_, until);
  Nanoseconds yield_at = began + kYieldEvery;
  for (Nanoseconds at = began; at < end; at = now()) {
    for (int i = 0; i < kPollsPerCheck; ++i) {
      if (poll() || who.woken) {
        spin_ = spin_most_;
        return true;
      }
      spin_pause();
    }
    if (wanting_.load(std::memory_order_relaxed) != 0) yield_lock();
    if (!kernel.empty() && poll_for(kernel, 0, nullptr) > 0) return true;
    if (at < yield_at) continue;
    ::sched_yield();  // the one we wait for may be waiting for this very core
    yield_at = now() + kYieldEvery;
  }
  return false;
}

// While there is one, its thread does not have the lock.
class Runtime::Asleep {
 public:
  Asleep(Runtime& runtime, Sleeper& who) : runtime_(runtime), who_(who) {
    runtime.asleep_.push_back(&who);
    was_asleep_ = std::exchange(who.asleep, true);
    outermost_ = SleepOfThread::own.at == nullptr;
    if (outermost_) SleepOfThread::own = {__builtin_frame_address(0), &who};
    runtime.release();
  }
  ~Asleep() {
    runtime_.regain();
    who_.asleep = was_asleep_;
    if (outermost_) SleepOfThread::own = {};
    std::erase(runtime_.asleep_, &who_);
    if (runtime_.watcher_ == &who_) runtime_.watcher_ = nullptr;
  }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;

 private:
  Runtime& runtime_;
  Sleeper& who_;
  bool outermost_ = false;  // not of a handler's call
  bool was_asleep_ = false;
};

// A thread that was asleep is in the library again: by a call of a handler that runs meanwhile, which is below on the stack or on one of
// its own, or since a handler has left the sleep by longjmp(). Then nobody else ends what its calls had begun.
void Runtime::forget_sleep(const void* here) noexcept {
  if (std::less<>()(here, SleepOfThread::own.at)) return;
  stack_t other{};
  ::sigaltstack(nullptr, &other);
  if ((other.ss_flags & SS_ONSTACK) != 0) return;
  Sleeper& who = *std::exchange(SleepOfThread::own, {}).who;
  std::erase(asleep_, &who);
  who.asleep = false;
  if (watcher_ == &who) watcher_ = nullptr;
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
  if (who.woken) return Woken::something;  // while spin() had given the lock away
  Few<pollfd> memory(kernel.size() + 2);
  const std::span<pollfd> all = memory.all();
  std::copy(kernel.begin(), kernel.end(), all.begin() + 2);
  all[0] = {.fd = who.event, .events = POLLIN, .revents = 0};
  all[1] = {.fd = -1, .events = POLLIN, .revents = 0};
  // A handler's call watches instead of the call that it has interrupted: that one does not sleep again (WakesOuter).
  const bool watches = (watcher_ == nullptr || watcher_ == &who) && sockets_ != nullptr;
  if (watches && is_still_armed()) {
    sockets_->network().stay_armed();
  } else if ((watches || lacks_room()) && !arm()) {
    poll();  // who arms takes away what would have woken others
    return Woken::something;
  }
  if (watches) {
    watcher_ = &who;
    all[1].fd = endpoint_fd_;
  }
  const Nanoseconds began = now();
  // Timers of the stack are the watcher's, too.
  Nanoseconds end = watches ? std::min(until, sockets_->stack().next_event()) : until;
  if (who.event < 0) end = std::min(end, began + kTick);  // the process may open no more descriptors: nobody can wake us
  int ready = 0;
  bool interrupted;
  {
    const Asleep asleep(*this, who);
    if (!this_call.handled && end > began) ready = poll_for(all, end == kForever ? kForever : end - began, mask);
    interrupted = ready < 0 && errno == EINTR;
  }
  interrupted = interrupted || this_call.handled;  // also if it had been woken just before: its call looks for what woke it first
  still_armed_ = watches && ready == 0 && !interrupted;
  armed_locks_ = locks_;
  const Nanoseconds slept = now() - began;
  spin_ = slept < kWorthSpinning ? spin_most_ : slept > kIdle ? 0 : std::max(std::min(kSpinLeast, spin_most_), spin_ / 2);
  std::copy(all.begin() + 2, all.end(), kernel.begin());
  poll();
  if (interrupted) return Woken::interrupted;
  return ready == 0 && began < end && end == until && now() >= until ? Woken::timed_out : Woken::something;
}

bool Runtime::let_handlers_run() {
  const Asleep asleep(*this, this_thread());
  return this_call.handled;
}

// As ppoll() and pselect() say it at the end of their time.
bool Runtime::is_interrupted(Sleeper& who, const sigset_t& mask) {
  const Asleep asleep(*this, who);
  return this_call.handled || (poll_for({}, 0, &mask) < 0 && errno == EINTR);
}

// An idle program waits again and again for a time: nothing has come since, and it has done nothing but wait once more.
bool Runtime::is_still_armed() const noexcept {
  return armed_ && still_armed_ && locks_ == armed_locks_ + 1 && proxies_ == nullptr && !sockets_->stack().wants_room();
}

// False: there is something already, to be taken in before the lock is given away.
bool Runtime::arm() {
  still_armed_ = false;
  if (sockets_ == nullptr) return false;
  armed_for_room_ = sockets_->stack().wants_room();
  armed_ = sockets_->network().arm(sockets_->stack());
  return armed_;
}

// The watcher would not be told of the room that the stack waits for.
bool Runtime::lacks_room() const noexcept { return sockets_ != nullptr && sockets_->stack().wants_room() && !(armed_ && armed_for_room_); }

// Before the lock is given away. True: the helper is to be kicked.
bool Runtime::hands_on() noexcept {
  if (sockets_ == nullptr || ending_) return false;
  if (sockets_->stack().changes() != 0) dispatch();
  if (!helper_rests_) return false;
  if (must_end_rest()) {
    helper_rests_ = false;
    return true;
  }
  if (watcher_ != nullptr || helper_watches_) return false;
  if (!asleep_.empty()) {
    watcher_ = asleep_.front();
    watcher_->wake();
    return false;
  }
  helper_rests_ = false;
  return helper_takes_over_ = true;
}

// ---- the helper

bool Runtime::start_helper() {
  if (helper_event_ < 0) helper_event_ = event_out_of_the_way();
  if (helper_event_ < 0) return false;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's
  pthread_t thread;
  const bool started = ::pthread_create(&thread, nullptr, &Runtime::helper, this) == 0;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started) ::pthread_detach(thread);
  return started;
}

void Runtime::kick_helper() noexcept { ring(helper_event_); }

// How long it may take.
Nanoseconds Runtime::begin_rest() noexcept {
  const Nanoseconds next = sockets_->stack().next_event(), at = now();
  Nanoseconds time = next == kForever ? kForever : std::max(next, at) - at;
  if (watcher_ != nullptr) time = std::min(time, kLongRest);
  if (at < orphan_until_) time = std::min(time, orphan_until_ - at);
  if (unneeded_since_ != 0) time = std::min(time, kUnderWay);
  helper_rests_ = true;
  rests_since_ = arrivals_;
  rests_until_ = time == kForever ? kForever : at + time;
  return waiting_back_.empty() ? time : std::min(time, kRest);
}

// Before that, it is needed: something has come, or would come unnoticed, the network interface has gone, or a timer is due that was not
// there yet.
bool Runtime::must_end_rest() const noexcept {
  const Nanoseconds next = sockets_->stack().next_event();
  const bool earlier = next < rests_until_ && rests_until_ - next > kSlowTick;
  const bool lost = !sockets_->network().endpoint().connection().alive();  // as far as is known: to ask is a system call
  return arrivals_ != rests_since_ || !armed_ || lost || sockets_->stack().wants_room() || earlier;
}

// The orphan process is needed no longer, and the network interface, which knows the other owners by now, sends it nothing any longer.
bool Runtime::orphan_is_done() noexcept {
  if (orphan_until_ == 0) return false;
  if (sockets_ == nullptr || proxies_ == nullptr) return true;
  const bool needed = proxies_->is_needed(now() < orphan_until_) || proxies_->is_draining();
  const bool idle = sockets_->stack().idle();
  const bool heard = std::exchange(orphan_arrivals_, arrivals_) != arrivals_;
  if (needed) unneeded_since_ = 0;
  else if (unneeded_since_ == 0 || (heard && !idle)) unneeded_since_ = now();
  return !needed && now() - unneeded_since_ > (idle ? kUnderWay : kLinger);
}

void Runtime::help() {
  Guard guard;
  const uint32_t number = helper_number_;
  uint64_t seen = arrivals_, polls = polls_;
  int quiet = 0;
  bool takes_over = false;
  std::vector<pollfd> fds;
  while (!ending_ && helper_number_ == number && !orphan_is_done()) {
    if (LastThread::is_awaited() && LastThread::is_this()) {
      release();
      std::exit(EXIT_SUCCESS);
    }
    if (is_lost()) lose_interface();
    // Also where a call of the program has found one before.
    if (sockets_ == nullptr || !waiting_back_.empty()) come_back();
    if (sockets_ == nullptr) {
      release();
      poll_for({}, kRest, nullptr);
      regain();
      continue;
    }
    // Nobody has looked since the last time, and somebody may have to be woken.
    if (polls_ == polls) poll();
    verify_some();
    if (watcher_ != nullptr && (!armed_ || lacks_room()) && !arm()) poll();
    quiet = arrivals_ == seen ? quiet + 1 : 0;
    seen = arrivals_;
    polls = polls_;
    fds.assign({{.fd = helper_event_, .events = POLLIN, .revents = 0}, {.fd = -1, .events = POLLIN, .revents = 0}});
    if (proxies_ != nullptr) proxies_->append(fds);
    const size_t theirs = fds.size();
    parents_.append(fds);
    Nanoseconds time = quiet < kTicks ? kTick : kSlowTick;
    if (quiet >= kTicks + kSlowTicks && !sockets_->stack().wants_room()) {
      time = kTick;
      if (watcher_ != nullptr ? armed_ : arm()) {
        // Who was rung watches, although a thread does so again: else it would be rung each time that one leaves its call.
        helper_watches_ = watcher_ == nullptr || std::exchange(takes_over, false);
        if (helper_watches_) fds[1].fd = endpoint_fd_;
        time = begin_rest();
      }
    }
    if (LastThread::is_awaited()) time = std::min(time, kSlowTick);
    if (proxies_ != nullptr && proxies_->has_hung()) time = std::min(time, SocketProxies::kLooksAgain);
    release();
    const bool kicked = poll_for(fds, time, nullptr) > 0 && fds[0].revents != 0;
    regain();
    if (helper_number_ != number) return;
    helper_rests_ = false;
    if (kicked) {
      clear(helper_event_);
      takes_over = std::exchange(helper_takes_over_, false);
      quiet = takes_over ? kTicks + kSlowTicks : 0;
    }
    if (ending_ || sockets_ == nullptr) continue;
    if (proxies_ != nullptr && proxies_->process(std::span(fds).subspan(2, theirs - 2))) quiet = 0;
    if (fds.size() != theirs) parents_.process();
  }
}

}  // namespace unet::preload
