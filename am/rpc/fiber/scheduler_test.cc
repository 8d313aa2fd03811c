// scheduler_test.cc - pollers: when they are polled, how a scheduler sleeps on them, and how threads share them.
#include "am/rpc/fiber/scheduler.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include <catch2/catch.hpp>

#include "am/rpc/fiber/fiber.h"
#include "unet/base/eventfd_wake.h"
#include "unet/base/test_seeds.h"

namespace unet::fiber::scheduler_test {
namespace {

// A counter that other threads raise: each unit of it wakes a fiber.
class Mailbox : public Poller {
 public:
  uint32_t poll() override {
    ++polls;
    const uint32_t arrived = mail_.exchange(0, std::memory_order_acquire);
    received += arrived;
    if (arrived != 0 && waiter != nullptr) unpark(*waiter);
    return arrived;
  }
  std::optional<int> arm(Nanoseconds&) override {
    ++arms;
    uint64_t count;
    static_cast<void>(!::read(descriptor_.get(), &count, sizeof count));
    asleep_.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (mail_.load(std::memory_order_relaxed) != 0) return std::nullopt;
    return descriptor_.get();
  }
  // From another thread.
  void send() {
    mail_.fetch_add(1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (asleep_.exchange(false, std::memory_order_relaxed)) write_eventfd(descriptor_.get());
  }

  Fiber* waiter = nullptr;
  uint32_t polls = 0, arms = 0, received = 0;

 private:
  Descriptor descriptor_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::atomic<uint32_t> mail_{0};
  std::atomic<bool> asleep_{false};
};

Nanoseconds processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_nsec);
}

}  // namespace

// The other fibers, if there are any, are always ready.
TEST_CASE("Messages of a poller wake a fiber, whether its thread polls, sleeps, or runs other fibers") {
  for (const uint32_t threads : {1, 2}) {
    for (const bool beside : {false, true}) {
      Mailbox mailbox;
      auto scheduler = Scheduler::create({.threads = threads});
      const uint32_t count = test::seeds(300);
      std::thread sender;
      REQUIRE((*scheduler)->run([&] {
        std::atomic<bool> stop{!beside};
        auto busy = spawn([&] {
          while (!stop.load(std::memory_order_relaxed)) yield();
        });
        mailbox.waiter = current();
        (*scheduler)->add(mailbox);
        sender = std::thread([&] {
          for (uint32_t i = 0; i < count; ++i) {
            if (i % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 100));
            mailbox.send();
          }
        });
        const auto received = [&] {
          const std::lock_guard held(mailbox);
          return mailbox.received;
        };
        while (received() != count) park();
        (*scheduler)->remove(mailbox);
        stop.store(true, std::memory_order_relaxed);
        busy.join();
      }));
      sender.join();
    }
  }
}

TEST_CASE("An idle scheduler uses no processor time, and asks its pollers before it sleeps") {
  for (const uint32_t threads : {1, 2}) {
    Mailbox first, second;
    auto scheduler = Scheduler::create({.threads = threads});
    (*scheduler)->add(first);
    (*scheduler)->add(second);
    REQUIRE((*scheduler)->run([&] {
      fiber::sleep(50 * kMillisecond);
      const Nanoseconds before = processor_time();
      fiber::sleep(400 * kMillisecond);
      CHECK(processor_time() - before < 40 * kMillisecond);
    }));
    CHECK(first.arms > 0);
    CHECK(second.arms > 0);
    CHECK(first.polls == second.polls);
  }
}

TEST_CASE("Another thread polls while a fiber computes") {
  Mailbox mailbox;
  auto scheduler = Scheduler::create({.threads = 2});
  (*scheduler)->add(mailbox);
  REQUIRE((*scheduler)->run([&] {
    std::atomic<bool> woken{false};
    auto waiter = spawn([&] {
      park();
      woken.store(true, std::memory_order_release);
    });
    mailbox.waiter = &waiter.fiber();
    yield();
    fiber::sleep(5 * kMillisecond);
    mailbox.send();
    const Nanoseconds start = monotonic_now();
    while (!woken.load(std::memory_order_acquire) && monotonic_now() - start < 60 * kSecond) spin_pause();  // no switch
    CHECK(woken.load(std::memory_order_acquire));
    waiter.join();
  }));
}

TEST_CASE("A poller starts fibers, and adds pollers") {
  class Starter : public Poller {
   public:
    explicit Starter(Scheduler& scheduler) : scheduler_(scheduler) {}
    uint32_t poll() override {
      if (++polls_ != 3) return 0;
      scheduler_.add(added);
      spawn([this] { ended = true; }).detach();
      yield();  // does nothing here
      CHECK(current() == nullptr);
      return 1;
    }
    std::optional<int> arm(Nanoseconds& limit) override {
      limit = std::min(limit, kMillisecond);
      return -1;
    }
    bool ended = false;
    Mailbox added;

   private:
    Scheduler& scheduler_;
    int polls_ = 0;
  };
  auto scheduler = Scheduler::create({.threads = 1});
  Starter starter(**scheduler);
  (*scheduler)->add(starter);
  REQUIRE((*scheduler)->run([&] {
    while (!starter.ended) fiber::sleep(kMillisecond);
  }));
  CHECK(starter.added.polls > 0);
}

// The delay of stop() follows the time at which the first fiber runs, and sweeps the time just before that.
TEST_CASE("stop() is not lost if run() begins at the same time") {
  constexpr uint32_t kStep = 61, kSweep = 1000;
  const uint32_t rounds = test::seeds(4000);
  std::atomic<Scheduler*> begins{nullptr};
  std::atomic<bool> returned{false};
  uint32_t delay = 0, lost = 0;
  std::thread other([&] {
    for (uint32_t i = 0; i < rounds; ++i) {
      Scheduler* scheduler = nullptr;
      while ((scheduler = begins.load(std::memory_order_acquire)) == nullptr) spin_pause();
      for (uint32_t j = std::min(delay, i * kStep % kSweep); j < delay; ++j) asm volatile("" : : : "memory");
      scheduler->stop();
      const Nanoseconds start = monotonic_now();
      while (!returned.load(std::memory_order_acquire) && monotonic_now() - start < 2 * kSecond) spin_pause();
      if (!returned.load(std::memory_order_acquire)) {
        ++lost;
        scheduler->stop();
      }
      begins.store(nullptr, std::memory_order_release);
    }
  });
  for (uint32_t i = 0; i < rounds; ++i) {
    auto scheduler = Scheduler::create({.threads = 1});
    bool has_run = false;
    returned.store(false, std::memory_order_relaxed);
    begins.store(scheduler->get(), std::memory_order_release);
    const Status ran = (*scheduler)->run([&] {
      has_run = true;
      for (;;) park();
    });
    returned.store(true, std::memory_order_release);
    CHECK(ran);
    while (begins.load(std::memory_order_acquire) != nullptr) std::this_thread::yield();
    delay = has_run ? delay - std::min(delay, kStep) : delay + kStep;
  }
  other.join();
  CHECK(lost == 0);
}

TEST_CASE("The number of threads is that of the cores, or as asked for") {
  CHECK((*Scheduler::create())->threads() >= 1);
  CHECK((*Scheduler::create({.threads = 3}))->threads() == 3);
  CHECK(Scheduler::create({.threads = 1000}).error().code == Errc::invalid_argument);
}

}  // namespace unet::fiber::scheduler_test
