// scheduler.cc - the threads of a scheduler, its pollers, and the counts of what is asleep and what has ended.
#include "am/rpc/fiber/scheduler.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>

namespace unet::fiber {
namespace {

uint32_t cores() noexcept {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set)) : 1;
}

}  // namespace

// ---- pollers

bool Poller::try_lock() noexcept {
  if (!shared_) return true;
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  sleeper_.store(nullptr, std::memory_order_relaxed);  // whatever this thread does may undo arm()
  return true;
}

void Poller::lock() noexcept {
  while (!try_lock()) {
    Worker* const worker = Worker::current();
    if (worker != nullptr && worker->running() != nullptr) {
      worker->yield();
    } else {
      ::sched_yield();
    }
  }
}

// Calls the function when no other thread uses the pollers. A handler that calls this is inside already.
template <typename Function>
auto Scheduler::with_pollers(Function&& function) {
  const void* const self = Worker::current() != nullptr ? static_cast<const void*>(Worker::current()) : this;
  if (polling_.load(std::memory_order_relaxed) == self) return function();
  const void* none = nullptr;
  while (!polling_.compare_exchange_weak(none, self, std::memory_order_acquire, std::memory_order_relaxed)) {
    none = nullptr;
    ::sched_yield();
  }
  struct End {
    std::atomic<const void*>& polling;
    ~End() { polling.store(nullptr, std::memory_order_release); }
  } const end{polling_};
  return function();
}

void Scheduler::add(Poller& poller) {
  with_pollers([&] {
    poller.shared_ = threads() > 1;
    pollers_.push_back(&poller);
    poller_count_.store(pollers_.size(), std::memory_order_relaxed);
  });
}

void Scheduler::remove(Poller& poller) {
  with_pollers([&] {
    std::erase(pollers_, &poller);
    poller_count_.store(pollers_.size(), std::memory_order_relaxed);
  });
}

// Calls each poller once, and again up to `rounds` times while there is no work.
uint32_t Scheduler::poll(uint32_t rounds) {
  if (poller_count_.load(std::memory_order_relaxed) == 0) return 0;
  const void* none = nullptr;
  const bool shared = threads() > 1;
  if (!shared) {
    polling_.store(Worker::current(), std::memory_order_relaxed);
  } else if (!polling_.compare_exchange_strong(none, Worker::current(), std::memory_order_acquire, std::memory_order_relaxed)) {
    return 0;  // another worker polls
  } else {
    last_poller_.store(Worker::current(), std::memory_order_relaxed);
    polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  uint32_t work = 0;
  for (; rounds != 0 && work == 0; --rounds) {
    for (size_t i = 0; i < pollers_.size(); ++i) {  // indexed, because handlers add pollers
      Poller& poller = *pollers_[i];
      if (!poller.try_lock()) continue;
      work += poller.poll();
      poller.unlock();
    }
  }
  polling_.store(nullptr, std::memory_order_release);
  return work;
}

// Arms the pollers that no other worker sleeps on. False: there is work.
bool Scheduler::arm(const Worker& sleeper, std::vector<pollfd>& waits, Nanoseconds& limit) {
  return with_pollers([&] {
    for (Poller* poller : pollers_) {
      if (poller->sleeper_.load(std::memory_order_relaxed) != nullptr) continue;
      if (!poller->try_lock()) {  // a fiber uses it
        limit = std::min(limit, kLookEvery);
        continue;
      }
      const std::optional<int> descriptor = poller->arm(limit);
      if (descriptor) poller->sleeper_.store(&sleeper, std::memory_order_relaxed);
      poller->unlock();
      if (!descriptor) return false;
      if (*descriptor >= 0) {
        waits.push_back({*descriptor, POLLIN, 0});
      } else {
        limit = std::min(limit, kLookEvery);
      }
    }
    return true;
  });
}

void Scheduler::disarm(const Worker& sleeper) noexcept {
  if (poller_count_.load(std::memory_order_relaxed) == 0) return;
  with_pollers([&] {
    for (Poller* poller : pollers_) {
      if (poller->sleeper_.load(std::memory_order_relaxed) == &sleeper) poller->sleeper_.store(nullptr, std::memory_order_relaxed);
    }
  });
}

// ---- life

Scheduler::Scheduler(const SchedulerOptions& options, Descriptor alarm)
    : spin_(options.spin), stacks_(options.stack_bytes, options.fibers), alarm_(std::move(alarm)) {}

Scheduler::~Scheduler() = default;

Result<std::unique_ptr<Scheduler>> Scheduler::create(const SchedulerOptions& options) {
  const uint32_t threads = options.threads != 0 ? options.threads : std::min(cores(), kThreadsMost);
  if (threads > kThreadsMost) return fail(Errc::invalid_argument, "a scheduler has at most 256 threads");
  Descriptor alarm(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!alarm.valid()) return fail_errno("timerfd_create", errno);
  std::unique_ptr<Scheduler> scheduler(new Scheduler(options, std::move(alarm)));
  for (uint32_t i = 0; i < threads; ++i) {
    Descriptor wakes(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!wakes.valid()) return fail_errno("eventfd", errno);
    scheduler->workers_.push_back(std::make_unique<Worker>(*scheduler, std::move(wakes), threads == 1));
  }
  return scheduler;
}

Fiber* Scheduler::create(size_t task_bytes, void (*function)(void*)) {
  Fiber* const fiber = stacks_.take();
  if (fiber != nullptr) Worker::prepare(*fiber, *workers_.front(), task_bytes, function);
  return fiber;
}

void Scheduler::start(Fiber& fiber) noexcept {
  started_.fetch_add(1, std::memory_order_release);
  Worker::post_first(fiber);
}

void Scheduler::run_all() {
  if (stopped_.load(std::memory_order_relaxed)) return;
  over_.store(false, std::memory_order_relaxed);
  std::vector<pthread_t> threads;
  for (size_t i = 1; i < workers_.size(); ++i) {
    pthread_t thread{};
    if (::pthread_create(&thread, nullptr, run_thread, workers_[i].get()) != 0) break;
    threads.push_back(thread);
  }
  run_thread(workers_.front().get());
  for (const pthread_t thread : threads) ::pthread_join(thread, nullptr);
}

void* Scheduler::run_thread(void* of) {
  Worker& worker = *static_cast<Worker*>(of);
  worker.scheduler().wake_up();
  worker.run();
  worker.scheduler().awake_.fetch_sub(1, std::memory_order_relaxed);
  return nullptr;
}

void Scheduler::stop() noexcept {
  stopped_.store(true, std::memory_order_relaxed);
  end();
}

void Scheduler::end() noexcept {
  over_.store(true, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // a worker announces its sleep, and then looks at over_
  for (const auto& worker : workers_) worker->wake();
}

// Ends are counted first: what has ended before that was started before, and nothing else can start more.
bool Scheduler::all_ended() const noexcept {
  uint64_t ended = 0;
  for (const auto& worker : workers_) ended += worker->ended();
  uint64_t started = started_.load(std::memory_order_acquire);
  for (const auto& worker : workers_) started += worker->started();
  return started == ended;
}

// ---- sleep

void Scheduler::wake_one() noexcept {
  for (const auto& worker : workers_) {
    if (worker->is_asleep()) return worker->wake();
  }
}

void Scheduler::fall_asleep(Nanoseconds& limit) noexcept {
  if (threads() == 1) return;
  const std::lock_guard held(alarm_mutex_);
  if (awake_.fetch_sub(1, std::memory_order_relaxed) == 1) {
    set_alarm(0);
  } else {
    limit = std::min(limit, kLookEvery);
  }
}

void Scheduler::wake_up() noexcept {
  if (threads() == 1) return;
  const std::lock_guard held(alarm_mutex_);
  if (awake_.fetch_add(1, std::memory_order_relaxed) == 0) set_alarm(kLookEvery);
}

void Scheduler::set_alarm(Nanoseconds after) noexcept {
  const itimerspec time{.it_interval = {}, .it_value = timespec_of(after)};
  ::timerfd_settime(alarm_.get(), 0, &time, nullptr);
}

}  // namespace unet::fiber
