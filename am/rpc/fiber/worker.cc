// worker.cc - what a worker does seldom: starts and ends of fibers, timers, polls, theft and sleep.
#include "am/rpc/fiber/worker.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "am/rpc/fiber/scheduler.h"
#include "unet/base/eventfd_wake.h"

// Worker::current() names it in assembly.
extern "C" {
__attribute__((tls_model("initial-exec"))) constinit thread_local unet::fiber::Worker* unet_fiber_worker = nullptr;
}

namespace unet::fiber {
namespace {

// As in unet::Endpoint::wait(): a process on the same core may be what this thread waits for.
constexpr Nanoseconds kYieldAfter = 2 * kMicrosecond;
constexpr Nanoseconds kYieldEvery = 5 * kMicrosecond;
// A ready fiber is stolen if its worker has run another one for so long.
constexpr Nanoseconds kStuck = 10 * kMicrosecond;
// Turns of fibers between two polls should take about that.
constexpr Nanoseconds kPollEvery = 20 * kMicrosecond;
constexpr uint32_t kPollsPerLook = 8;  // empty polls of an idle thread before it looks at the clock and at other threads

// Only one thread writes the counter.
template <typename T>
void increment(std::atomic<T>& counter) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace

Worker::Worker(Scheduler& scheduler, Descriptor wakes, bool alone) noexcept
    : alone_(alone), scheduler_(scheduler), wakes_(std::move(wakes)) {
  root_.worker_.store(this, std::memory_order_relaxed);
}

Worker* Worker::far_current() noexcept {
  Worker* worker = unet_fiber_worker;
  asm volatile("" : "+r"(worker) : : "memory");
  return worker;
}

// ---- begin and end of a fiber

Fiber* Worker::create(size_t task_bytes, void (*function)(void*)) {
  Fiber* fiber = free_;
  if (fiber != nullptr) {
    free_ = fiber->next_;
    --free_count_;
  } else {
    fiber = scheduler_.stacks_.take();
    if (fiber == nullptr) return nullptr;
  }
  increment(started_);
  prepare(*fiber, *this, task_bytes, function);
  return fiber;
}

void Worker::prepare(Fiber& fiber, Worker& worker, size_t task_bytes, void (*function)(void*)) noexcept {
  const uintptr_t top = (reinterpret_cast<uintptr_t>(&fiber) - task_bytes) & ~uintptr_t{63};
  fiber.task_ = reinterpret_cast<void*>(top);
  fiber.function_ = function;
  fiber.context_ = boost::context::detail::make_fcontext(fiber.task_, fiber.stack_bytes_ / 2, entry);
  fiber.state_ = Fiber::State::active;  // a late unpark() of the stack's last fiber must not start this one
  fiber.permit_ = false;
  fiber.joiner_.store(nullptr, std::memory_order_relaxed);
  fiber.worker_.store(&worker, std::memory_order_release);
  Switch::create(fiber);
}

void Worker::entry(boost::context::detail::transfer_t from) noexcept {
  Fiber& self = *current()->current_;
  arrive(from, self);
  self.function_(self.task_);
  exit();
}

void Worker::exit() noexcept {
  Worker* const worker = current();
  Fiber* const self = worker->current_;
  worker->lock();
  increment(worker->ended_);
  Fiber* const joiner = self->joiner_.load(std::memory_order_acquire);
  // The usual end: the fiber that waits belongs to this worker, and cannot touch our stack before we have left it.
  if (joiner != nullptr && joiner != Fiber::detached_mark() && joiner->worker_.load(std::memory_order_acquire) == worker &&
      joiner->state_ == Fiber::State::parked && !worker->is_visit_due()) {
    self->state_ = Fiber::State::gone;
    joiner->state_ = Fiber::State::active;
    self->joiner_.store(Fiber::ended_mark(), std::memory_order_release);
    worker->switch_to(*self, *joiner);
  }
  self->state_ = Fiber::State::ended;
  worker->switch_to(*self, *worker->take());
  __builtin_unreachable();
}

// The fiber has left its stack. This worker holds its own lock.
void Worker::publish_end(Fiber& fiber) noexcept {
  fiber.state_ = Fiber::State::gone;
  Fiber* const joiner = fiber.joiner_.exchange(Fiber::ended_mark(), std::memory_order_acq_rel);
  if (joiner == nullptr) return;
  if (joiner == Fiber::detached_mark()) {
    recycle(fiber);
  } else if (joiner->worker_.load(std::memory_order_acquire) == this) {
    make_ready(*joiner);
  } else {
    post(*joiner);
  }
}

void Worker::join(Fiber& fiber) noexcept {
  Fiber* const self = parkable();
  if (alone_ && !has_ended(fiber)) {
    fiber.joiner_.store(self, std::memory_order_relaxed);
  } else {
    Fiber* none = nullptr;
    fiber.joiner_.compare_exchange_strong(none, self, std::memory_order_acq_rel, std::memory_order_acquire);
  }
  while (!has_ended(fiber)) current()->park();
}

void Worker::detach(Fiber& fiber) noexcept {
  if (fiber.joiner_.exchange(Fiber::detached_mark(), std::memory_order_acq_rel) == Fiber::ended_mark()) recycle(fiber);
}

// With one worker, drain() runs on the thread that uses stacks again: a fiber in an inbox does no harm before the stack leaves this thread.
void Worker::recycle(Fiber& fiber) noexcept {
  Switch::destroy(fiber);
  if (alone_ || fiber.set_free()) add_free(fiber);
}

void Worker::add_free(Fiber& fiber) noexcept {
  fiber.next_ = free_;
  free_ = &fiber;
  if (++free_count_ < kFreeMost) return;
  Fiber *first = nullptr, *last = nullptr;
  for (; free_count_ > kFreeMost / 2; --free_count_) {
    Fiber& each = *std::exchange(free_, free_->next_);
    if (!each.set_free()) continue;
    each.next_ = first;
    if (first == nullptr) last = &each;
    first = &each;
  }
  if (first != nullptr) scheduler_.stacks_.give_back(first, last);
}

// ---- waiting

bool Worker::park_until(Nanoseconds deadline) {
  if (deadline == kNever) {
    park();
    return true;
  }
  Fiber* const self = parkable();
  lock();
  if (std::exchange(self->permit_, false)) {
    unlock();
    return true;
  }
  timers_.add(*self, deadline);
  note_timers();
  self->timed_out_ = false;
  self->state_ = Fiber::State::parked;
  switch_to(*self, *take());
  return !self->timed_out_;
}

void Worker::remove_timer(Fiber& fiber) noexcept {
  timers_.remove(fiber);
  note_timers();
}

void Worker::post(Fiber& fiber) noexcept {
  // acq_rel: if it is posted already, drain() sees what this thread wrote before.
  if (fiber.marks_.fetch_or(Fiber::kPosted, std::memory_order_acq_rel) != 0) return;
  Worker& worker = *fiber.worker_.load(std::memory_order_acquire);
  Fiber* first = worker.inbox_.load(std::memory_order_relaxed);
  do {
    fiber.inbox_next_ = first;
  } while (!worker.inbox_.compare_exchange_weak(first, &fiber, std::memory_order_release, std::memory_order_relaxed));
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the worker announces its sleep, and then looks at the inbox
  worker.wake();
}

void Worker::drain() noexcept {
  Fiber* newest = inbox_.exchange(nullptr, std::memory_order_acquire);
  Fiber* oldest = nullptr;
  while (newest != nullptr) oldest = std::exchange(newest, std::exchange(newest->inbox_next_, oldest));
  while (oldest != nullptr) {
    Fiber& fiber = *std::exchange(oldest, oldest->inbox_next_);
    const bool ours = fiber.worker_.load(std::memory_order_acquire) == this;
    if (ours) make_ready(fiber);
    // Last: another fiber may use the stack from now on. Until we unlock, a post() is the same wake-up.
    const uint8_t marks = fiber.marks_.fetch_and(static_cast<uint8_t>(~Fiber::kPosted), std::memory_order_acq_rel);
    if ((marks & Fiber::kFree) != 0) {
      here().add_free(fiber);
    } else if (!ours) {
      post(fiber);
    }
  }
}

void Worker::collect(Nanoseconds now) noexcept {
  if (inbox_.load(std::memory_order_relaxed) != nullptr) drain();
  if (timers_.earliest() > now) return;
  while (Fiber* const fiber = timers_.take(now)) {
    fiber->timed_out_ = true;
    make_ready(*fiber);
  }
  note_timers();
}

// ---- the lock

void Worker::lock_slowly() noexcept {
  for (uint32_t spins = 1; thief_.load(std::memory_order_acquire) != 0; ++spins) {
    busy_.store(0, std::memory_order_release);
    if (spins % 64 == 0) ::sched_yield();  // the thief may need this core
    spin_pause();
    busy_.store(1, std::memory_order_relaxed);
    light_fence();
  }
  if (inbox_.load(std::memory_order_relaxed) != nullptr) drain();
}

bool Worker::seize() noexcept {
  uintptr_t none = 0;
  if (!thief_.compare_exchange_strong(none, 1, std::memory_order_acquire, std::memory_order_relaxed)) return false;
  heavy_fence();
  for (int i = 0; i < 1000; ++i) {
    if (busy_.load(std::memory_order_acquire) == 0) return true;
    spin_pause();
  }
  release();
  return false;
}

// ---- the root: polls, steals, sleeps

void Worker::run() noexcept {
  Worker* const before = std::exchange(unet_fiber_worker, this);
  Switch::adopt_thread(root_);
  idle_since_ = 0;
  for (;;) {
    const bool busy = !queue_.empty();  // fibers let us poll, and go on
    const Nanoseconds now = busy || !alone_ || ++visits_ % 16 == 0 ? monotonic_now() : 0;
    const uint32_t work = is_poller(now) ? scheduler_.poll(busy ? 1 : kPollsPerLook) : 0;
    if (busy) set_pace(now);
    lock();
    if (now != 0) collect(now);
    if (!queue_.empty() && !scheduler_.is_over()) {
      idle_since_ = 0;
      has_run_ = true;
      next_visit_ = queue_.popped() + interval_;
      switch_to(root_, *queue_.pop());
      continue;
    }
    unlock();
    if (!idle(monotonic_now(), work)) break;
  }
  unet_fiber_worker = before;
}

// Whether this worker is to poll. Another one that has done so lately goes on with it: two would wait for each other, longest if one of
// them loses its core meanwhile. If that one sleeps, it has armed the pollers; a fiber that has run here may have used one since.
bool Worker::is_poller(Nanoseconds now) noexcept {
  const Worker* const last = scheduler_.last_poller_.load(std::memory_order_relaxed);
  if (last == this || last == nullptr) return true;
  if (last->is_asleep()) return has_run_;
  const uint32_t polls = scheduler_.polls_.load(std::memory_order_relaxed);
  if (std::exchange(polls_seen_, polls) != polls) polls_since_ = now;
  return now - polls_since_ >= kPollEvery;
}

// Fibers that run for long between two switches let the root poll after fewer switches.
void Worker::set_pace(Nanoseconds now) noexcept {
  const Nanoseconds took = now - std::exchange(last_visit_, now);
  if (took > 2 * kPollEvery) {
    interval_ = std::max(interval_ / 2, uint32_t{1});
  } else if (took < kPollEvery) {
    interval_ = std::min(2 * interval_, kTurnsMost);
  }
}

bool Worker::idle(Nanoseconds now, uint32_t work) noexcept {
  if (scheduler_.is_over()) return false;
  lock();
  collect(now);
  unlock();
  if (work != 0 || !queue_.empty()) {
    idle_since_ = 0;
    return true;
  }
  if (scheduler_.all_ended()) {
    scheduler_.end();
    return false;
  }
  if (!alone_ && steal(now)) return true;
  if (idle_since_ == 0) {
    idle_since_ = now;
    next_yield_ = now + kYieldAfter;
  }
  if (now - idle_since_ >= scheduler_.spin_) {
    sleep(now);
    idle_since_ = 0;
  } else if (now >= next_yield_) {
    ::sched_yield();
    next_yield_ = now + kYieldEvery;
  } else {
    spin_pause();
  }
  return true;
}

// Takes half of the ready fibers of a worker that has several, or that has run one fiber for long. The thief does all that the owner would.
bool Worker::steal(Nanoseconds now) noexcept {
  victims_.resize(scheduler_.workers_.size());
  for (size_t i = 0; i < victims_.size(); ++i) {
    Worker& victim = *scheduler_.workers_[i];
    if (&victim == this || victim.is_asleep()) continue;
    const uint32_t popped = victim.queue_.popped();
    if (victims_[i].popped != popped) victims_[i] = {popped, now};
    const bool due = victim.queue_.size() != 0 || victim.inbox_.load(std::memory_order_relaxed) != nullptr ||
                     victim.deadline_.load(std::memory_order_relaxed) <= now;
    if (victim.queue_.size() < 2 && !(due && now - victims_[i].since >= kStuck)) continue;
    if (!victim.seize()) continue;
    victim.collect(now);
    Fiber* first = nullptr;
    Fiber** end = &first;
    for (uint32_t left = (victim.queue_.size() + 1) / 2; left != 0; --left) {
      Fiber* const fiber = victim.queue_.pop();
      fiber->worker_.store(this, std::memory_order_release);
      *end = fiber;
      end = &fiber->next_;
    }
    *end = nullptr;
    victim.release();
    if (first == nullptr) continue;
    lock();
    while (first != nullptr) queue_.push(*std::exchange(first, first->next_));
    unlock();
    return true;
  }
  return false;
}

void Worker::share() noexcept {
  if (queue_.size() >= 2 && scheduler_.awake_.load(std::memory_order_relaxed) < scheduler_.threads()) scheduler_.wake_one();
}

void Worker::wake() noexcept {
  if (is_asleep() && asleep_.exchange(0, std::memory_order_acq_rel) != 0) write_eventfd(wakes_.get());
}

void Worker::sleep(Nanoseconds now) noexcept {
  asleep_.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // post(), and the end of another worker's last fiber
  waits_.assign(1, {wakes_.get(), POLLIN, 0});
  const bool polls = is_poller(now);
  const Worker* const last = scheduler_.last_poller_.load(std::memory_order_relaxed);
  Nanoseconds limit = polls || last->is_asleep() ? kNever : kLookEvery;
  if (inbox_.load(std::memory_order_relaxed) == nullptr && !scheduler_.is_over() && !scheduler_.all_ended() &&
      (!polls || scheduler_.arm(*this, waits_, limit)) && queue_.empty()) {
    if (!alone_) waits_.push_back({scheduler_.alarm_.get(), POLLIN, 0});
    scheduler_.fall_asleep(limit);
    const Nanoseconds deadline = deadline_.load(std::memory_order_relaxed);
    if (deadline != kNever) limit = std::min(limit, deadline - std::min(deadline, monotonic_now()));
    const timespec time = timespec_of(std::min(limit, 3600 * kSecond));
    static_cast<void>(::ppoll(waits_.data(), waits_.size(), &time, nullptr));
    scheduler_.wake_up();
    has_run_ = false;
    uint64_t count = 0;
    if (waits_.front().revents != 0) static_cast<void>(!::read(wakes_.get(), &count, sizeof count));
    if (!alone_ && waits_.back().revents != 0) static_cast<void>(!::read(scheduler_.alarm_.get(), &count, sizeof count));
  }
  asleep_.store(0, std::memory_order_relaxed);
  scheduler_.disarm(*this);
}

}  // namespace unet::fiber
