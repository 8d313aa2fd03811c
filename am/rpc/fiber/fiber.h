// fiber.h - user-level threads: start and join fibers, yield, park and sleep; the C++ API, together with sync.h and scheduler.h.
//
//   auto scheduler = unet::fiber::Scheduler::create();               // a kernel thread for each core
//   (*scheduler)->run([] {                                           // returns when all fibers have ended
//     auto answer = unet::fiber::spawn([] { return 6 * 7; });        // a fiber: false if there is no memory for it
//     unet::fiber::yield();                                          // lets other fibers run
//     std::printf("%d\n", answer.join());                            // waits for its result
//   });
//
// A fiber has a stack of its own and runs until it waits, yields or ends: there is no preemption. A fiber that waits gives its core to the
// next ready one. A thread without ready fibers steals some from other threads, polls the scheduler's pollers (scheduler.h), and at last
// sleeps. Fibers that are ready run in the order in which they became ready. Only join() runs earlier: it continues at the end of the
// fiber that it waits for. Mutexes, conditions and events are in sync.h.
//
// A fiber may continue on another kernel thread after each call that may switch: all calls here except unpark() and spawn(), and those of
// sync.h that wait. Therefore:
// - Keep no address of a thread_local variable across such a call; compilers do so unasked. errno is one. Read it before.
// - Hold no std::mutex or other lock of the kernel thread across such a call, and do not switch in a catch block. Both belong to a thread.
// - An exception that leaves a fiber's function ends the program.
// - A system call that blocks stops all fibers of its thread, until another thread steals the ready ones.
// With one thread (SchedulerOptions::threads) fibers do not move, and nothing here executes an atomic read-modify-write on the usual paths.
//
// A fiber that computes for long must yield now and then, if it is to poll for others. Other threads of its scheduler, if there are any,
// notice after a millisecond at most, and poll in its place.
//
// A stack that overflows meets a guard page: the program dies by SIGSEGV at an address below the stack. Stacks have 64 KiB by default, of
// which only the touched pages take memory. After fork() the scheduler stays with the parent. The child has one thread, and may only call
// exec or _exit.
//
// Only fibers call these functions, unless their comments allow others.
#pragma once

#include <new>
#include <type_traits>
#include <utility>

#include "am/rpc/fiber/scheduler.h"

namespace unet::fiber {

// Returns the calling fiber; nullptr outside of fibers, also in a poller and its handlers.
inline Fiber* current() noexcept {
  Worker* const worker = Worker::current();
  return worker != nullptr ? worker->running() : nullptr;
}

// Lets all fibers run that are ready. Does nothing outside of fibers.
[[gnu::always_inline]] inline void yield() noexcept {
  Worker* const worker = Worker::current();
  if (worker != nullptr) [[likely]] worker->yield();
}

// Waits for unpark(). An unpark() that came first is stored: then park() returns at once. At most one is stored. A stored one may be left
// over from an earlier wait, so check the condition again in a loop. A blocking call is made of this:
//
//   call.fiber = fiber::current();
//   while (!call.answered) fiber::park();                            // its handler sets `answered`, and then calls unpark(*call.fiber)
[[gnu::always_inline]] inline void park() noexcept { Worker::here().park(); }

// Works like park() until `deadline`, a time of monotonic_now(). Returns false if the deadline came first.
inline bool park_until(Nanoseconds deadline) { return Worker::here().park_until(deadline); }

// Wakes a fiber that has not been joined yet. Any thread may call this, and a poller's handler. The fiber sees all that the caller wrote
// before.
[[gnu::always_inline]] inline void unpark(Fiber& fiber) noexcept {
  Worker* const worker = Worker::current();
  if (worker != nullptr) [[likely]] return worker->unpark(fiber);
  Worker::post(fiber);
}

// Waits for `duration`.
inline void sleep(Nanoseconds duration) {
  const Nanoseconds deadline = monotonic_now() + duration;
  while (monotonic_now() < deadline) park_until(deadline);
}

// Refers to a started fiber with a result of type T. A handle that ends before join() or detach() ends the program.
template <typename T>
class [[nodiscard]] Handle {
 public:
  Handle() noexcept = default;
  Handle(Handle&& other) noexcept : fiber_(std::exchange(other.fiber_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (fiber_ != nullptr) misused("a fiber's handle was assigned to before its fiber was joined or detached");
    fiber_ = std::exchange(other.fiber_, nullptr);
    return *this;
  }
  ~Handle() {
    if (fiber_ != nullptr) misused("a fiber's handle ended before its fiber was joined or detached");
  }

  // Returns whether there is a fiber. There is none if spawn() found no memory, or after join() or detach().
  explicit operator bool() const noexcept { return fiber_ != nullptr; }
  // Returns the fiber for unpark().
  Fiber& fiber() const noexcept { return *fiber_; }
  bool has_ended() const noexcept { return Worker::has_ended(*fiber_); }

  // Waits for the end, and returns the result.
  T join() noexcept;
  // Lets the fiber end alone. There is nothing that takes its result, so that must need no destructor.
  void detach() noexcept {
    static_assert(std::is_void_v<T> || std::is_trivially_destructible_v<T>);
    Worker::here().detach(*std::exchange(fiber_, nullptr));
  }

 private:
  friend class Handles;
  explicit Handle(Fiber* fiber) noexcept : fiber_(fiber) {}

  Fiber* fiber_ = nullptr;
};

// The function of a fiber, moved onto its stack. The result takes its place.
template <typename Function>
class Task {
 public:
  using T = std::invoke_result_t<Function>;
  static_assert(sizeof(Function) <= 4096, "a function object on a fiber's stack must be small: let it refer to its data");
  static_assert(alignof(Function) <= 64);

  template <typename From>
  explicit Task(From&& function) : function_(std::forward<From>(function)) {}

  static void run(void* task) noexcept {
    auto& self = *static_cast<Task*>(task);
    Function function(std::move(self.function_));
    self.function_.~Function();
    if constexpr (std::is_void_v<T>) {
      std::move(function)();
    } else {
      static_assert(sizeof(T) <= 4096 && alignof(T) <= 64, "a fiber's result must be small");
      new (task) T(std::move(function)());
    }
  }

 private:
  friend class Handles;
  struct Nothing {};
  union {
    Function function_;
    std::conditional_t<std::is_void_v<T>, Nothing, T> result_;
  };

 public:
  ~Task() {}
};

// Makes fibers of functions, and takes their results.
class Handles {
 public:
  // A fiber or a handler of a poller calls this.
  template <typename Function>
  static auto spawn(Function&& function) {
    using Its = Task<std::decay_t<Function>>;
    Worker& worker = Worker::here();
    Fiber* const fiber = worker.create(sizeof(Its), Its::run);
    if (fiber != nullptr) {
      new (fiber->task_) Its(std::forward<Function>(function));
      worker.start(*fiber);
    }
    return Handle<typename Its::T>(fiber);
  }
  // Any thread may call this. The fiber is detached. Returns false if there is no stack.
  template <typename Function>
  static bool post(Scheduler& scheduler, Function&& function) {
    using Its = Task<std::decay_t<Function>>;
    Fiber* const fiber = scheduler.create(sizeof(Its), Its::run);
    if (fiber == nullptr) return false;
    new (fiber->task_) Its(std::forward<Function>(function));
    fiber->joiner_.store(Fiber::detached_mark(), std::memory_order_relaxed);
    scheduler.start(*fiber);
    return true;
  }
  template <typename T>
  static T join(Fiber& fiber) noexcept {
    Worker::here().join(fiber);
    if constexpr (std::is_void_v<T>) {
      Worker::here().recycle(fiber);
    } else {
      T& result = *static_cast<T*>(fiber.task_);
      T taken(std::move(result));
      result.~T();
      Worker::here().recycle(fiber);
      return taken;
    }
  }
};

template <typename T>
T Handle<T>::join() noexcept {
  return Handles::join<T>(*std::exchange(fiber_, nullptr));
}

// Starts a fiber that calls `function()`, and returns its handle; the fiber runs when the caller waits. The function is moved onto the new
// stack. A poller's handlers may call this, too.
template <typename Function>
auto spawn(Function&& function) {
  return Handles::spawn(std::forward<Function>(function));
}

template <typename Function>
Status Scheduler::run(Function&& function) {
  if (!Handles::post(*this, std::forward<Function>(function))) return fail(Errc::out_of_memory, "no memory for a fiber's stack");
  run_all();
  return {};
}

template <typename Function>
bool Scheduler::post(Function&& function) {
  return Handles::post(*this, std::forward<Function>(function));
}

}  // namespace unet::fiber
