// worker_test.cc - fibers on several threads: theft, races of unpark with park and deadlines, joins and ends.
#include "am/rpc/fiber/worker.h"

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "am/rpc/fiber/sync.h"
#include "unet/base/random.h"
#include "unet/base/test_seeds.h"

namespace unet::fiber::worker_test {
namespace {

template <typename Function>
void run(uint32_t threads, Function&& function) {
  auto scheduler = Scheduler::create({.threads = threads});
  REQUIRE(scheduler.has_value());
  REQUIRE((*scheduler)->run(std::forward<Function>(function)).has_value());
}

void compute(Nanoseconds time) {
  for (const Nanoseconds start = monotonic_now(); monotonic_now() - start < time;) spin_pause();
}

}  // namespace

TEST_CASE("An idle worker steals ready fibers from one that computes") {
  run(2, [] {
    std::atomic<bool> stolen{false};
    auto other = spawn([&] { stolen.store(true, std::memory_order_release); });
    const Nanoseconds start = monotonic_now();
    while (!stolen.load(std::memory_order_acquire) && monotonic_now() - start < 60 * kSecond) spin_pause();  // no switch
    CHECK(stolen.load(std::memory_order_acquire));
    other.join();
  });
}

TEST_CASE("Timers and wake-ups of a worker that computes are served by another") {
  run(2, [] {
    std::atomic<int> woken{0};
    auto sleeper = spawn([&] {
      fiber::sleep(kMillisecond);
      woken.fetch_add(1, std::memory_order_release);
    });
    auto parked = spawn([&] {
      park();
      woken.fetch_add(1, std::memory_order_release);
    });
    yield();
    std::thread other([&] { unpark(parked.fiber()); });
    const Nanoseconds start = monotonic_now();
    while (woken.load(std::memory_order_acquire) != 2 && monotonic_now() - start < 60 * kSecond) spin_pause();
    CHECK(woken.load(std::memory_order_acquire) == 2);
    other.join();
    sleeper.join();
    parked.join();
  });
}

TEST_CASE("Work is spread over the threads") {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  run(2, [&] {
    const Nanoseconds start = monotonic_now();
    do {
      std::vector<Handle<void>> handles;
      for (int i = 0; i < 10; ++i) {
        handles.push_back(spawn([&] {
          compute(kMillisecond);
          const std::lock_guard held(mutex);
          threads.insert(std::this_thread::get_id());
        }));
      }
      for (auto& handle : handles) handle.join();
    } while (threads.size() != 2 && monotonic_now() - start < 60 * kSecond);
  });
  CHECK(threads.size() == 2);
}

// Each fiber wakes others at random, and waits for its own count of wake-ups, with deadlines at times. No wake-up may be lost.
TEST_CASE("No unpark is lost between threads") {
  for (uint64_t seed = 1; seed <= test::seeds(40); ++seed) {
    for (const uint32_t threads : {1, 2, 4}) {
      constexpr uint32_t kFibers = 16, kRounds = 200;
      std::vector<std::atomic<uint32_t>> mail(kFibers);
      std::vector<std::atomic<Fiber*>> fibers(kFibers);
      std::atomic<uint32_t> sent{0}, received{0};
      std::atomic<bool> started{false};
      run(threads, [&] {
        std::vector<Handle<void>> handles;
        for (uint32_t i = 0; i < kFibers; ++i) {
          handles.push_back(spawn([&, i] {
            uint64_t random = seed * kFibers + i;
            uint32_t mine = 0;
            while (!started.load(std::memory_order_acquire)) park();
            for (uint32_t round = 0; round < kRounds; ++round) {
              // One message to the next fiber, and one from the one before.
              const uint32_t to = (i + 1) % kFibers;
              mail[to].fetch_add(1, std::memory_order_release);
              sent.fetch_add(1, std::memory_order_relaxed);
              unpark(*fibers[to].load(std::memory_order_acquire));
              if (next_random(random) % 8 == 0) yield();
              if (next_random(random) % 64 == 0) compute(next_random(random) % 30 * kMicrosecond);
              while (mail[i].load(std::memory_order_acquire) == mine) {
                if (next_random(random) % 4 == 0) {
                  park_until(monotonic_now() + next_random(random) % 50 * kMicrosecond);
                } else {
                  park();
                }
              }
              ++mine;
              received.fetch_add(1, std::memory_order_relaxed);
            }
          }));
          fibers[i].store(&handles.back().fiber(), std::memory_order_release);
        }
        started.store(true, std::memory_order_release);
        for (auto& handle : handles) unpark(handle.fiber());
        for (auto& handle : handles) handle.join();
      });
      REQUIRE(received.load(std::memory_order_relaxed) == sent.load(std::memory_order_relaxed));
    }
  }
}

TEST_CASE("Threads outside of the scheduler wake fibers, and start some") {
  for (const uint32_t threads : {1, 2}) {
    const uint32_t rounds = test::seeds(3000);
    auto scheduler = Scheduler::create({.threads = threads});
    std::atomic<uint32_t> asked{0}, answered{0}, posted{0};
    std::thread other;
    REQUIRE((*scheduler)->run([&] {
      Fiber& self = *current();
      other = std::thread([&] {
        for (uint32_t i = 1; i <= rounds; ++i) {
          while (asked.load(std::memory_order_acquire) < i) std::this_thread::yield();
          if (i % 16 == 0) (*scheduler)->post([&] { posted.fetch_add(1, std::memory_order_relaxed); });
          answered.store(i, std::memory_order_release);
          unpark(self);
        }
      });
      for (uint32_t i = 1; i <= rounds; ++i) {
        asked.store(i, std::memory_order_release);
        while (answered.load(std::memory_order_acquire) < i) park();
      }
      other.join();
    }));
    CHECK(posted.load(std::memory_order_relaxed) == rounds / 16);
  }
}

// A round has more fibers than a worker stores stacks. Fibers of the next round thus get stacks of fibers that end, and are woken late.
TEST_CASE("A late unpark does no harm to the next fiber of the stack") {
  constexpr uint32_t kFibers = 600, kBatch = 60;
  struct Slot {
    std::atomic<Fiber*> fiber{nullptr};
    std::atomic<bool> done{false};
  };
  for (const uint32_t threads : {1, 2}) {
    const uint32_t total = kFibers * test::seeds(200);
    std::vector<Slot> slots(total);
    std::atomic<uint32_t> posted{0}, ended{0};
    auto scheduler = Scheduler::create({.threads = threads});
    std::thread poster([&] {
      for (Slot& slot : slots) {
        REQUIRE((*scheduler)->post([&] {
          slot.fiber.store(current(), std::memory_order_release);
          while (!slot.done.load(std::memory_order_acquire)) yield();
          ended.fetch_add(1, std::memory_order_release);
        }));
        posted.fetch_add(1, std::memory_order_release);
        while (posted.load(std::memory_order_relaxed) - ended.load(std::memory_order_relaxed) > 2 * kFibers) std::this_thread::yield();
      }
    });
    std::thread waker([&] {
      for (uint32_t i = 0; i < total; i += kBatch) {
        while (posted.load(std::memory_order_acquire) < i / kFibers * kFibers + kFibers) std::this_thread::yield();
        for (uint32_t j = i; j < i + kBatch; ++j) {
          while (slots[j].fiber.load(std::memory_order_acquire) == nullptr) std::this_thread::yield();
          slots[j].done.store(true, std::memory_order_release);
        }
        for (uint32_t j = i; j < i + kBatch; ++j) unpark(*slots[j].fiber.load(std::memory_order_relaxed));
      }
    });
    REQUIRE((*scheduler)->run([&] {
      while (ended.load(std::memory_order_acquire) != total) fiber::sleep(kMillisecond);
    }));
    poster.join();
    waker.join();
  }
}

TEST_CASE("Trees of fibers are joined over threads, and the scheduler ends each time") {
  struct Tree {
    static uint32_t count(uint32_t depth) {
      if (depth == 0) return 1;
      auto left = spawn([depth] { return count(depth - 1); });
      auto right = spawn([depth] { return count(depth - 1); });
      return left.join() + right.join();
    }
  };
  for (uint64_t seed = 1; seed <= test::seeds(60); ++seed) {
    auto scheduler = Scheduler::create({.threads = 1 + static_cast<uint32_t>(seed % 3), .stack_bytes = 32 * 1024});
    for (int i = 0; i < 3; ++i) {
      uint32_t leaves = 0;
      REQUIRE((*scheduler)->run([&] { leaves = Tree::count(6); }));
      REQUIRE(leaves == 64);
    }
  }
}

TEST_CASE("Detached fibers end on any thread, before or after they are detached") {
  const uint32_t count = test::seeds(5000);
  std::atomic<uint32_t> ended{0};
  run(3, [&] {
    for (uint32_t i = 0; i < count; ++i) {
      auto handle = spawn([&] { ended.fetch_add(1, std::memory_order_relaxed); });
      if (i % 3 == 0) yield();
      handle.detach();
    }
  });
  CHECK(ended.load(std::memory_order_relaxed) == count);
}

}  // namespace unet::fiber::worker_test
