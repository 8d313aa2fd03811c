// worker.h - a kernel thread of a scheduler: its ready queue, timers and idle loop; used through fiber.h.
//
// Each worker has a lock that protects its queue, its timers and the fibers that belong to it. Its own thread takes that lock with a store
// and a load: no atomic read-modify-write, which would cost more than the switch. Another thread announces itself, makes all cores fence
// (unet/base/fence.h), and waits until the owner is out. Only idle workers do that, in order to steal. A thread that wakes another worker's
// fiber does not need the lock: it puts the fiber into that worker's inbox.
//
// The owner holds its lock during a switch. So a fiber that is in the queue but still on its stack cannot be stolen.
#pragma once

#include <poll.h>

#include <atomic>
#include <vector>

#include "am/rpc/fiber/context.h"
#include "am/rpc/fiber/ready_queue.h"
#include "am/rpc/fiber/timer_heap.h"
#include "unet/base/fence.h"
#include "unet/base/misuse.h"
#include "unet/mapping.h"

namespace unet::fiber {

class Scheduler;

// A sleeping worker looks for work that often while another one is awake: that one may run a fiber for long.
constexpr Nanoseconds kLookEvery = kMillisecond;

class Worker {
 public:
  Worker(Scheduler& scheduler, Descriptor wakes, bool alone) noexcept;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The worker of this thread, or nullptr. A fiber may be on another thread after each switch. Compilers take the address of a thread-local
  // variable for constant in a function, so this reads it in a way that they do not see through.
  [[gnu::always_inline]] static Worker* current() noexcept {
#if defined(__x86_64__)
    Worker* worker;
    asm volatile("movq unet_fiber_worker@gottpoff(%%rip), %0\n\tmovq %%fs:(%0), %0" : "=r"(worker) : : "memory");
    return worker;
#else
    return far_current();
#endif
  }
  // The worker of this thread. The program ends if there is none.
  [[gnu::always_inline]] static Worker& here() noexcept {
    Worker* const worker = current();
    if (worker == nullptr) [[unlikely]] misused("only a fiber may wait, start a fiber, or use a mutex or condition of fibers");
    return *worker;
  }
  // The fiber that runs here; nullptr in a poller, which runs on the thread's own stack.
  Fiber* running() noexcept { return current_ != &root_ ? current_ : nullptr; }
  Scheduler& scheduler() noexcept { return scheduler_; }
  // Whether no other thread runs fibers of this scheduler.
  bool alone() const noexcept { return alone_; }

  // ---- what fibers do; only on the worker's own thread

  [[gnu::always_inline]] void yield() noexcept {
    Fiber* const self = current_;
    if (self == &root_) [[unlikely]] return;
    lock();
    if (queue_.empty() || is_visit_due()) [[unlikely]] {
      queue_.push(*self);
      switch_to(*self, root_);
    } else {
      switch_to(*self, *queue_.rotate(*self));
    }
  }
  [[gnu::always_inline]] void park() noexcept {
    Fiber* const self = parkable();
    lock();
    if (self->permit_) {
      self->permit_ = false;
      unlock();
      return;
    }
    self->state_ = Fiber::State::parked;
    switch_to(*self, *take());
  }
  // Returns false if the deadline came first.
  bool park_until(Nanoseconds deadline);
  // Wakes a fiber of any worker, from this thread. The caller holds no worker's lock.
  [[gnu::always_inline]] void unpark(Fiber& fiber) noexcept {
    lock();
    const bool here = fiber.worker_.load(std::memory_order_acquire) == this;
    if (here) make_ready(fiber);
    unlock();
    if (!here) {
      post(fiber);
    } else if (!alone_) {
      share();
    }
  }
  // Wakes a fiber from any thread.
  static void post(Fiber& fiber) noexcept;

  // Makes a fiber of this worker, with room for its task; nullptr if there is no stack. start() makes it ready.
  Fiber* create(size_t task_bytes, void (*function)(void*));
  void start(Fiber& fiber) noexcept {
    fiber.set_used();
    lock();
    queue_.push(fiber);
    unlock();
    if (!alone_) share();
  }
  // Another thread, which has taken the stack, uses these instead.
  static void prepare(Fiber& fiber, Worker& worker, size_t task_bytes, void (*function)(void*)) noexcept;
  static void post_first(Fiber& fiber) noexcept {
    fiber.state_ = Fiber::State::parked;
    fiber.set_used();
    post(fiber);
  }
  // Waits until the fiber has ended and has left its stack. detach(): nothing waits for it.
  void join(Fiber& fiber) noexcept;
  void detach(Fiber& fiber) noexcept;
  static bool has_ended(const Fiber& fiber) noexcept { return fiber.joiner_.load(std::memory_order_acquire) == Fiber::ended_mark(); }
  // Gives the stack of a fiber back that has ended.
  void recycle(Fiber& fiber) noexcept;

  // ---- what the scheduler does

  // Runs fibers until the scheduler is over.
  void run() noexcept;
  // Ends a sleep, from any thread.
  void wake() noexcept;
  bool is_asleep() const noexcept { return asleep_.load(std::memory_order_relaxed) != 0; }
  uint64_t started() const noexcept { return started_.load(std::memory_order_acquire); }
  uint64_t ended() const noexcept { return ended_.load(std::memory_order_acquire); }

 private:
  static constexpr uint32_t kTurnsMost = 64;   // switches between two polls while fibers are ready
  static constexpr uint32_t kFreeMost = 256;   // free stacks that a worker keeps for itself

  static Worker* far_current() noexcept;
  static void entry(boost::context::detail::transfer_t from) noexcept;
  [[noreturn]] static void exit() noexcept;

  // ---- the lock
  void lock() noexcept {
    busy_.store(1, std::memory_order_relaxed);
    light_fence();
    // acquire: we see all that a thief has changed.
    if ((thief_.load(std::memory_order_acquire) | reinterpret_cast<uintptr_t>(inbox_.load(std::memory_order_relaxed))) != 0) [[unlikely]] {
      lock_slowly();
    }
  }
  void unlock() noexcept { busy_.store(0, std::memory_order_release); }
  void lock_slowly() noexcept;
  // Takes the lock for a thief. Returns false if the owner stays in it, or another thief has it.
  bool seize() noexcept;
  void release() noexcept { thief_.store(0, std::memory_order_release); }

  // ---- with the lock
  Fiber* parkable() noexcept {
    if (current_ == &root_) [[unlikely]] misused("a poller must not wait: its handlers start or wake a fiber that waits instead");
    return current_;
  }
  // Whether enough fibers have run since the last poll.
  bool is_visit_due() const noexcept { return static_cast<int32_t>(queue_.popped() - next_visit_) >= 0; }
  // The fiber to switch to: the next ready one, or the root, which polls.
  Fiber* take() noexcept {
    if (queue_.empty() || is_visit_due()) return &root_;
    prefetch_next();
    return queue_.pop();
  }
  // Among thousands of ready fibers, the next ones have left the cache since they became ready.
  void prefetch_next() const noexcept {
    constexpr uint32_t kFiber = 8, kStack = 4;  // fibers ahead
    if (queue_.size() <= kFiber) return;
    __builtin_prefetch(queue_.at(kFiber));
    const auto* const stack = static_cast<const std::byte*>(queue_.at(kStack)->context_);
    for (size_t line = 0; line < 5; ++line) __builtin_prefetch(stack + 64 * line);
  }
  void make_ready(Fiber& fiber) noexcept {
    if (fiber.state_ != Fiber::State::parked) {
      fiber.permit_ = true;
      return;
    }
    __builtin_prefetch(fiber.context_);  // it runs soon
    __builtin_prefetch(static_cast<std::byte*>(fiber.context_) + 64);
    __builtin_prefetch(static_cast<std::byte*>(fiber.context_) + 128);
    if (fiber.timer_ != kNoTimer) remove_timer(fiber);
    fiber.state_ = Fiber::State::active;
    queue_.push(fiber);
  }
  void remove_timer(Fiber& fiber) noexcept;
  void note_timers() noexcept { deadline_.store(timers_.earliest(), std::memory_order_relaxed); }
  void drain() noexcept;
  // Makes fibers ready that are in the inbox or have reached their deadline.
  void collect(Nanoseconds now) noexcept;
  void publish_end(Fiber& fiber) noexcept;
  // Stores a free stack for the next fiber of this worker, which is that of the calling thread.
  void add_free(Fiber& fiber) noexcept;

  // Leaves `from`, which is parked, ended or in the queue. Returns when `from` runs again, perhaps on another worker. Releases the lock.
  [[gnu::always_inline]] void switch_to(Fiber& from, Fiber& to) noexcept {
    current_ = &to;
    Switch::before(from, to);
    arrive(boost::context::detail::jump_fcontext(to.context_, &from), from);
  }
  [[gnu::always_inline]] static void arrive(boost::context::detail::transfer_t from, Fiber& self) noexcept {
    Fiber& before = *static_cast<Fiber*>(from.data);
    before.context_ = from.fctx;
    Switch::after(before, self);
    Worker* const worker = self.worker_.load(std::memory_order_relaxed);
    if (before.state_ == Fiber::State::ended) [[unlikely]] worker->publish_end(before);
    worker->unlock();
  }

  // ---- idle
  // Wakes a sleeping worker if there are ready fibers for it.
  void share() noexcept;
  bool steal(Nanoseconds now) noexcept;
  bool is_poller(Nanoseconds now) noexcept;
  void set_pace(Nanoseconds now) noexcept;
  // Returns false if the scheduler is over.
  bool idle(Nanoseconds now, uint32_t work) noexcept;
  void sleep(Nanoseconds now) noexcept;

  // Used at each switch
  Fiber* current_ = &root_;
  ReadyQueue queue_;
  std::atomic<uint32_t> busy_{0};     // the owner holds the lock
  uint32_t next_visit_ = kTurnsMost;  // the root polls when so many fibers have left the queue
  const bool alone_;
  uint32_t free_count_ = 0;
  Fiber* free_ = nullptr;             // stacks of fibers that have ended
  // Written by others
  alignas(64) std::atomic<uintptr_t> thief_{0};
  std::atomic<Fiber*> inbox_{nullptr};  // woken by others, the newest first
  std::atomic<uint32_t> asleep_{0};

  alignas(64) Fiber root_;            // the thread's own stack: polls, steals and sleeps
  Scheduler& scheduler_;
  TimerHeap timers_;
  std::atomic<Nanoseconds> deadline_{kNever};  // the earliest timer's, for thieves
  std::atomic<uint64_t> started_{0};
  std::atomic<uint64_t> ended_{0};
  Descriptor wakes_;
  // Used by the root only
  uint32_t interval_ = kTurnsMost;    // switches between two polls
  uint32_t visits_ = 0;
  Nanoseconds last_visit_ = 0;
  Nanoseconds idle_since_ = 0;        // 0: not idle
  Nanoseconds next_yield_ = 0;        // in nanoseconds of idleness
  struct Victim {
    uint32_t popped = 0;
    Nanoseconds since = 0;            // no fiber has left its queue since then
  };
  std::vector<Victim> victims_;
  bool has_run_ = false;              // a fiber, since the last sleep
  uint32_t polls_seen_ = 0;           // of the scheduler
  Nanoseconds polls_since_ = 0;       // no other worker has polled since then
  std::vector<pollfd> waits_;
};

}  // namespace unet::fiber
