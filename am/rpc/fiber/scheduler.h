// scheduler.h - runs fibers on one kernel thread or several, polls for them, and sleeps when there is nothing to do; used through fiber.h.
#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "am/rpc/fiber/stack_pool.h"
#include "am/rpc/fiber/worker.h"
#include "unet/base/result.h"

namespace unet::fiber {

// A source of work: an endpoint, for example. A scheduler polls all its pollers in turn, on the thread's own stack, when no fiber is ready
// and now and then when some are. Its handlers may start and wake fibers, but may not wait. One thread at a time calls a poller.
class Poller {
 public:
  virtual ~Poller() = default;
  // Does about one batch of work at most, so that no poller starves another. Returns the amount of work.
  virtual uint32_t poll() = 0;
  // The scheduler is about to sleep. Nothing: there is work, so it polls instead. Otherwise a descriptor that becomes readable when there
  // may be work, or -1. The poller lowers `limit` to the time after which it wants to be polled anyway.
  virtual std::optional<int> arm(Nanoseconds& limit) = 0;

  // A fiber locks a poller to use the same object. It does not wait or yield meanwhile. With one worker these cost nothing.
  void lock() noexcept;
  bool try_lock() noexcept;
  void unlock() noexcept {
    if (shared_) busy_.store(false, std::memory_order_release);
  }

 private:
  friend class Scheduler;
  bool shared_ = true;              // several threads may call
  std::atomic<bool> busy_{false};
  std::atomic<const Worker*> sleeper_{nullptr};  // the worker that sleeps on its descriptor; nullptr also when it was used since
};

struct SchedulerOptions {
  uint32_t threads = 0;               // kernel threads; 0: as many as this process has cores
  size_t stack_bytes = 64 * 1024;     // of each fiber; memory is taken when touched, 4 KiB at least
  uint32_t fibers = 30'000;           // at one time. The kernel's limit on mappings (vm.max_map_count) allows about 32,000 by default
  Nanoseconds spin = 20 * kMicrosecond;  // an idle thread polls for that long before it sleeps
};

class Scheduler {
 public:
  // Errors: invalid_argument (more than kThreadsMost threads), out_of_memory (no descriptor).
  static Result<std::unique_ptr<Scheduler>> create(const SchedulerOptions& options = {});
  // Destroy it outside run(), when no other thread can still wake one of its fibers. Stacks of fibers that have not ended are unmapped;
  // destructors of their objects do not run.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  static constexpr uint32_t kThreadsMost = 256;

  // Starts `function()` as a fiber, and makes the calling thread a worker until all fibers have ended or stop() was called. A fiber that
  // never ends keeps it here. Starts the other threads and joins them; goes on with fewer if the kernel refuses. May be called again unless
  // it was stopped. Errors: out_of_memory (no stack for the fiber).
  template <typename Function>
  Status run(Function&& function);
  // Starts a detached fiber from any thread while run() has not returned, or before it is called. Returns false if there
  // is no memory for its stack.
  template <typename Function>
  bool post(Function&& function);
  // Makes run() return as soon as each worker's fiber waits, yields or ends. Fibers that have not ended never run again. Any thread.
  void stop() noexcept;

  // A poller lives until it is removed or run() has returned. Only fibers, handlers, and before and after run() the program's own thread
  // may call these. A poller is not removed by its own handler.
  void add(Poller& poller);
  void remove(Poller& poller);

  uint32_t threads() const noexcept { return static_cast<uint32_t>(workers_.size()); }

 private:
  friend class Handles;
  friend class Worker;

  Scheduler(const SchedulerOptions& options, Descriptor alarm);
  Fiber* create(size_t task_bytes, void (*function)(void*));
  void start(Fiber& fiber) noexcept;
  void run_all();
  static void* run_thread(void* worker);
  template <typename Function>
  auto with_pollers(Function&& function);

  // For workers
  uint32_t poll(uint32_t rounds);
  bool arm(const Worker& sleeper, std::vector<pollfd>& waits, Nanoseconds& limit);
  void disarm(const Worker& sleeper) noexcept;
  bool all_ended() const noexcept;
  // run_all() resets over_, perhaps after a stop().
  bool is_over() const noexcept { return over_.load(std::memory_order_acquire) || stopped_.load(std::memory_order_acquire); }
  void end() noexcept;
  void wake_one() noexcept;
  void fall_asleep(Nanoseconds& limit) noexcept;
  void wake_up() noexcept;
  void set_alarm(Nanoseconds after) noexcept;

  const Nanoseconds spin_;
  StackPool stacks_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<bool> over_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<uint32_t> awake_{0};    // workers that do not sleep
  std::mutex alarm_mutex_;            // of changes of awake_
  Descriptor alarm_;                  // a timer that wakes sleepers a while after the first worker has woken
  std::atomic<uint64_t> started_{0};  // fibers started by threads that are no workers

  std::atomic<const void*> polling_{nullptr};  // the worker or thread that uses pollers_
  std::atomic<const Worker*> last_poller_{nullptr};  // the worker that polled last
  std::atomic<uint32_t> polls_{0};
  std::atomic<size_t> poller_count_{0};
  std::vector<Poller*> pollers_;
};

}  // namespace unet::fiber
