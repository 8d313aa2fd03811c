// poller.h - decides which thread sleeps on the network interface for all, and when the helper thread polls instead; part of the
// runtime, under its lock.
//
// A thread in a call polls the stack. A thread that waits spins for a while, then sleeps. The first sleeper is the watcher: it sleeps on
// the endpoint's descriptor, too, and notifies the others of what arrives. While no thread is in a call the helper polls each
// millisecond, then each 10 ms, and idles when nothing arrives at all.
//
// Each release of the lock (hand_on()) leaves one of these, or an arrival would wake no thread:
// - the helper is not idle, or has been kicked: it polls soon, and arms the endpoint then;
// - the endpoint is armed, and the watcher or the helper sleeps on it;
// - the endpoint is armed, and a sleeper has been woken to become the watcher, because the last one has left.
//
// The helper's states:
//
//   from            event                                                                     to
//   none            start_helper()                                                            ticking
//   ticking         no arrival in kTicks + kSlowTicks passes, endpoint armed, a thread watches  idle
//   ticking         the same, and no thread watches                                           watching
//   taking_over     the same, whether or not a thread watches again by then                   watching
//   idle            the watcher leaves its call, and no other thread sleeps                   taking_over, kicked
//   idle, watching  must_end_idle(): an arrival, not armed, no room, an earlier timer, NI gone  ticking, kicked
//   idle, watching  its sleep ends                                                            ticking
//   any             leave_helper(): in a child, or where an orphan process has the stack       none
//
// A helper that took over watches beside a new watcher. Else it would be kicked each time that the watcher leaves its call.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "ipstack/preload/sleeper.h"
#include "ipstack/sockets/endpoint_stack.h"
#include "unet/base/time.h"

namespace unet::preload {

using sockets::kForever;

class Poller {
 public:
  enum class Helper : uint8_t { none, ticking, taking_over, idle, watching };
  // How a thread that wants to sleep goes on.
  enum class Sleep : uint8_t { poll_first, until_woken, as_watcher };

  // Polls this stack from now on. `endpoint`: the descriptor of its endpoint.
  void attach(sockets::EndpointStack& stack, int endpoint) noexcept;
  // The stack is about to go. Wakes the watcher.
  void detach() noexcept;
  int endpoint() const noexcept { return endpoint_; }

  // Takes in arrivals, and runs timers that are due. At most `local_messages` are taken from local peers. True: sockets have changed.
  bool poll(Nanoseconds at, uint32_t local_messages);
  static constexpr Nanoseconds kRunEvery = 20 * kMicrosecond;  // between runs of timers, while polls find nothing
  Nanoseconds ran_at() const noexcept { return ran_at_; }      // the last run of timers
  uint64_t arrivals() const noexcept { return arrivals_; }

  // ---- threads that sleep

  void add_sleeper(Sleeper& who) { asleep_.push_back(&who); }
  void remove_sleeper(Sleeper& who) noexcept;
  void forget_sleepers() noexcept;  // in a child, as these threads are its parent's
  void wake_sleepers() noexcept;
  // poll_first: something has arrived, and the edges of the endpoint's descriptor are taken. `alone`: no other process has our sockets.
  // Then the endpoint is still armed if the thread has only waited since.
  Sleep begin_sleep(Sleeper& who, bool alone);
  // `quiet`: the watcher's sleep ended by its time.
  void end_sleep(bool quiet) noexcept { quiet_at_ = quiet ? locks_ : kNever; }
  void note_lock() noexcept { ++locks_; }
  // Waits up to `most` without releasing the lock. This takes the edges of the endpoint and withdraws the announcement of sleep.
  void wait(Nanoseconds most);

  // ---- the helper

  // Starts the thread if there is none. False: no thread or no eventfd can be made.
  bool start_helper(void* (*body)(void*));
  void leave_helper() noexcept;
  void kick_helper() noexcept;
  // Called first by a helper that start_helper() made, without the lock.
  void note_helper_runs() noexcept;
  // Waits until the thread runs run_helper(). While a thread starts, a sanitizer's runtime uses an allocator that fork() leaves locked.
  void await_helper() const noexcept;
  // Called before the lock is released: see the top of this file.
  void hand_on() noexcept;
  int helper_event() const noexcept { return helper_event_; }
  uint32_t helper_number() const noexcept { return helper_number_; }

  // A pass of the helper: has_polled(), keep_armed(), begin_wait(), its sleep, end_wait().
  void begin_passes() noexcept;
  bool has_polled() const noexcept { return polls_ != seen_polls_; }  // another thread has polled since the last pass
  bool keep_armed();                                                  // false: poll first
  // How long the helper sleeps, `most` if it idles. With helper_watches() it sleeps on the endpoint, too.
  Nanoseconds begin_wait(Nanoseconds at, Nanoseconds most);
  bool helper_watches() const noexcept { return helper_ == Helper::watching; }
  void end_wait(bool kicked) noexcept;
  void note_work() noexcept { quiet_ = 0; }

  // The helper's sleep while the program is in no call: kTick for kTicks passes without an arrival, then kSlowTick for kSlowTicks passes.
  static constexpr Nanoseconds kTick = kMillisecond, kSlowTick = 10 * kMillisecond;
  static constexpr int kTicks = 20, kSlowTicks = 10;

 private:
  enum class Armed : uint8_t { no, for_arrivals, for_room };  // for_room: for arrivals, too
  static constexpr uint64_t kNever = ~uint64_t{0} - 1;

  bool arm();
  bool wants_room() const noexcept { return endpoint_stack_ != nullptr && endpoint_stack_->stack().wants_room(); }
  // The stack waits for room, and the endpoint is not armed for room.
  bool lacks_room() const noexcept { return wants_room() && armed_ != Armed::for_room; }
  bool is_idle() const noexcept { return helper_ == Helper::idle || helper_ == Helper::watching; }
  bool must_end_idle() const noexcept;

  sockets::EndpointStack* endpoint_stack_ = nullptr;
  int endpoint_ = -1;
  Nanoseconds ran_at_ = 0;
  uint64_t polls_ = 0;
  uint64_t arrivals_ = 0;       // polls that found arrivals
  uint64_t taken_in_ = 0;       // EndpointNetwork::taken_in() at the last poll

  std::vector<Sleeper*> asleep_;
  Sleeper* watcher_ = nullptr;  // the sleeper that watches the endpoint, or is woken to do so next
  Armed armed_ = Armed::no;
  uint64_t locks_ = 0;          // how often the lock was taken
  uint64_t quiet_at_ = kNever;  // locks_ when the watcher's sleep ended by its time, and nothing has been armed since

  Helper helper_ = Helper::none;
  uint32_t helper_number_ = 0;  // number of the helper that may run: a child does not have its parent's
  int helper_event_ = -1;
  std::atomic<bool> helper_runs_{false};
  int quiet_ = 0;               // passes without an arrival
  uint64_t seen_arrivals_ = 0, seen_polls_ = 0;  // values at the last pass
  Nanoseconds idle_until_ = 0;
};

}  // namespace unet::preload
