// poller.cc - polling, arming the endpoint, and the helper's states.
#include "ipstack/preload/poller.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "ipstack/preload/real.h"
#include "unet/connection.h"

namespace unet::preload {
namespace {

constexpr Nanoseconds kIdleMost = 10 * kSecond;  // while another thread watches

}  // namespace

void Poller::attach(sockets::EndpointStack& stack, int endpoint) noexcept {
  endpoint_stack_ = &stack;
  endpoint_ = endpoint;
  taken_in_ = 0;
}

void Poller::detach() noexcept {
  endpoint_stack_ = nullptr;
  endpoint_ = -1;
  if (watcher_ != nullptr) watcher_->wake();
  watcher_ = nullptr;
  armed_ = Armed::no;
}

bool Poller::poll(Nanoseconds at, uint32_t local_messages) {
  if (endpoint_stack_ == nullptr) return false;
  sockets::Stack& stack = endpoint_stack_->stack();
  stack.set_time(at);
  sockets::EndpointNetwork& network = endpoint_stack_->network();
  const bool found = network.poll(stack, local_messages) != 0;
  // Calls of the program take in arrivals, too.
  const bool came = network.taken_in() != std::exchange(taken_in_, network.taken_in());
  if (found || stack.is_due() || at - ran_at_ > kRunEvery) {
    stack.run();
    ran_at_ = at;
    endpoint_stack_->set_run_time(at);
  }
  ++polls_;
  if (came) {
    ++arrivals_;
    armed_ = Armed::no;
  }
  return stack.changes() != 0;
}

// ---- threads that sleep

void Poller::remove_sleeper(Sleeper& who) noexcept {
  std::erase(asleep_, &who);
  if (watcher_ == &who) watcher_ = nullptr;
}

void Poller::forget_sleepers() noexcept {
  asleep_.clear();
  watcher_ = nullptr;
}

void Poller::wake_sleepers() noexcept {
  for (Sleeper* const each : asleep_) each->wake();
}

Poller::Sleep Poller::begin_sleep(Sleeper& who, bool alone) {
  // A call of a signal handler watches instead of the call that the handler has interrupted, which does not sleep again (WakesOuter).
  const bool watches = (watcher_ == nullptr || watcher_ == &who) && endpoint_stack_ != nullptr;
  // An idle program waits for a time, again and again. Nothing has arrived since, so the endpoint is still armed.
  if (watches && alone && armed_ != Armed::no && locks_ == quiet_at_ + 1 && !wants_room()) {
    endpoint_stack_->network().stay_armed();
  } else if ((watches || lacks_room()) && !arm()) {
    return Sleep::poll_first;
  }
  if (watches) watcher_ = &who;
  return watches ? Sleep::as_watcher : Sleep::until_woken;
}

void Poller::wait(Nanoseconds most) {
  static_cast<void>(endpoint_stack_->network().wait(endpoint_stack_->stack(), most));
  armed_ = Armed::no;
}

// False: something has arrived, and must be taken in before the lock is released.
bool Poller::arm() {
  quiet_at_ = kNever;
  if (endpoint_stack_ == nullptr) return false;
  const Armed armed = wants_room() ? Armed::for_room : Armed::for_arrivals;
  armed_ = endpoint_stack_->network().arm(endpoint_stack_->stack()) ? armed : Armed::no;
  return armed_ != Armed::no;
}

// ---- the helper

bool Poller::start_helper(void* (*body)(void*)) {
  if (helper_ != Helper::none) return true;
  if (helper_event_ < 0) helper_event_ = make_event();
  if (helper_event_ < 0) return false;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's
  pthread_t thread;
  helper_runs_ = false;
  const bool started = ::pthread_create(&thread, nullptr, body, nullptr) == 0;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) return false;
  ::pthread_detach(thread);
  helper_ = Helper::ticking;
  return true;
}

void Poller::leave_helper() noexcept {
  helper_ = Helper::none;
  if (helper_event_ >= 0) real().close(helper_event_);
  helper_event_ = -1;
  ++helper_number_;
}

void Poller::note_helper_runs() noexcept {
  helper_runs_ = true;
  helper_runs_.notify_all();
}

void Poller::await_helper() const noexcept {
  if (helper_ != Helper::none) helper_runs_.wait(false);
}

void Poller::kick_helper() noexcept { ring_event(helper_event_); }

void Poller::hand_on() noexcept {
  if (endpoint_stack_ == nullptr || !is_idle()) return;
  if (must_end_idle()) {
    helper_ = Helper::ticking;
    return kick_helper();
  }
  if (watcher_ != nullptr || helper_ == Helper::watching) return;
  if (!asleep_.empty()) {
    watcher_ = asleep_.front();
    watcher_->wake();
    return;
  }
  helper_ = Helper::taking_over;
  quiet_ = kTicks + kSlowTicks;
  kick_helper();
}

bool Poller::must_end_idle() const noexcept {
  const Nanoseconds next = endpoint_stack_->stack().next_event();
  const bool earlier = next < idle_until_ && idle_until_ - next > kSlowTick;
  const bool lost = !endpoint_stack_->network().endpoint().connection().alive();  // as known: to ask is a system call
  return arrivals_ != seen_arrivals_ || armed_ == Armed::no || lost || wants_room() || earlier;
}

void Poller::begin_passes() noexcept {
  quiet_ = 0;
  seen_arrivals_ = arrivals_;
  seen_polls_ = polls_;
}

bool Poller::keep_armed() { return watcher_ == nullptr || (armed_ != Armed::no && !lacks_room()) || arm(); }

Nanoseconds Poller::begin_wait(Nanoseconds at, Nanoseconds most) {
  quiet_ = arrivals_ == seen_arrivals_ ? quiet_ + 1 : 0;
  seen_arrivals_ = arrivals_;
  seen_polls_ = polls_;
  if (quiet_ < kTicks + kSlowTicks || wants_room()) return quiet_ < kTicks ? kTick : kSlowTick;
  if (watcher_ != nullptr ? armed_ == Armed::no : !arm()) return kTick;
  helper_ = watcher_ == nullptr || helper_ == Helper::taking_over ? Helper::watching : Helper::idle;
  const Nanoseconds next = endpoint_stack_->stack().next_event();
  Nanoseconds time = std::min(most, next == kForever ? kForever : std::max(next, at) - at);
  if (watcher_ != nullptr) time = std::min(time, kIdleMost);
  idle_until_ = time == kForever ? kForever : at + time;
  return time;
}

void Poller::end_wait(bool kicked) noexcept {
  if (is_idle()) helper_ = Helper::ticking;
  if (!kicked) return;
  clear_event(helper_event_);
  if (helper_ != Helper::taking_over) quiet_ = 0;
}

}  // namespace unet::preload
