// sync_test.cc - mutexes, conditions and events: exclusion, order of waiters, deadlines, and set() from other threads.
#include "am/rpc/fiber/sync.h"

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "unet/base/test_seeds.h"

namespace unet::fiber::sync_test {
namespace {

template <typename Function>
void run(uint32_t threads, Function&& function) {
  auto scheduler = Scheduler::create({.threads = threads});
  REQUIRE(scheduler.has_value());
  REQUIRE((*scheduler)->run(std::forward<Function>(function)).has_value());
}

}  // namespace

TEST_CASE("A mutex goes to its waiters in order") {
  std::string order;
  run(1, [&] {
    Mutex mutex;
    mutex.lock();
    CHECK_FALSE(mutex.try_lock());
    std::vector<Handle<void>> handles;
    for (char each = 'a'; each <= 'e'; ++each) {
      handles.push_back(spawn([&, each] {
        const std::lock_guard held(mutex);
        order += each;
        yield();
      }));
    }
    yield();
    mutex.unlock();
    mutex.lock();  // behind all others
    order += '.';
    mutex.unlock();
    for (auto& handle : handles) handle.join();
    CHECK(mutex.try_lock());
    mutex.unlock();
  });
  CHECK(order == "abcde.");
}

TEST_CASE("A wait for a mutex ends at its deadline") {
  run(1, [] {
    Mutex mutex;
    mutex.lock();
    auto late = spawn([&] { return mutex.try_lock_until(monotonic_now() + kMillisecond); });
    auto patient = spawn([&] {
      const bool has_it = mutex.try_lock_until(monotonic_now() + 100 * kSecond);
      mutex.unlock();
      return has_it;
    });
    CHECK_FALSE(late.join());
    mutex.unlock();
    CHECK(patient.join());
    CHECK(mutex.try_lock());
    mutex.unlock();
  });
}

TEST_CASE("A mutex excludes fibers of several threads") {
  const uint32_t rounds = test::seeds(20'000);
  run(2, [&] {
    Mutex mutex;
    uint64_t count = 0;
    std::vector<Handle<void>> handles;
    for (int i = 0; i < 8; ++i) {
      handles.push_back(spawn([&] {
        for (uint32_t round = 0; round < rounds; ++round) {
          const std::lock_guard held(mutex);
          const uint64_t before = count;
          if (round % 16 == 0) yield();
          count = before + 1;
        }
      }));
    }
    for (auto& handle : handles) handle.join();
    CHECK(count == 8 * uint64_t{rounds});
  });
}

TEST_CASE("A condition wakes its waiters in order, one or all, or lets them go at the deadline") {
  std::string order;
  run(1, [&] {
    Mutex mutex;
    Condition condition;
    int permits = 0;
    std::vector<Handle<void>> handles;
    for (char each = 'a'; each <= 'd'; ++each) {
      handles.push_back(spawn([&, each] {
        const std::lock_guard held(mutex);
        while (permits == 0) condition.wait(mutex);
        --permits;
        order += each;
      }));
    }
    auto late = spawn([&] {
      const std::lock_guard held(mutex);
      return condition.wait_until(mutex, monotonic_now() + kMillisecond);
    });
    CHECK_FALSE(late.join());
    permits = 1;
    condition.notify_one();
    handles[0].join();
    CHECK(order == "a");
    permits = 3;
    condition.notify_all();
    for (size_t i = 1; i < handles.size(); ++i) handles[i].join();
    condition.notify_one();
  });
  CHECK(order == "abcd");
}

TEST_CASE("Fibers of several threads pass items through a bounded queue") {
  const uint32_t items = test::seeds(20'000);
  run(2, [&] {
    Mutex mutex;
    Condition filled, emptied;
    std::vector<uint32_t> queue;
    uint64_t sum = 0;
    auto consume = [&] {
      for (uint32_t i = 0; i < items; ++i) {
        const std::lock_guard held(mutex);
        while (queue.empty()) filled.wait(mutex);
        sum += queue.back();
        queue.pop_back();
        emptied.notify_one();
      }
    };
    auto produce = [&] {
      for (uint32_t i = 0; i < items; ++i) {
        const std::lock_guard held(mutex);
        while (queue.size() == 4) emptied.wait(mutex);
        queue.push_back(i);
        filled.notify_one();
      }
    };
    Handle<void> handles[] = {spawn(consume), spawn(produce), spawn(produce), spawn(consume)};
    for (auto& handle : handles) handle.join();
    CHECK(sum == uint64_t{items} * (items - 1));
  });
}

TEST_CASE("An event stays set until it is reset") {
  run(1, [] {
    Event event;
    CHECK_FALSE(event.wait_until(monotonic_now() + kMillisecond));
    auto one = spawn([&] { event.wait(); });
    auto two = spawn([&] { event.wait(); });
    yield();
    event.set();
    one.join();
    two.join();
    event.wait();
    event.reset();
    CHECK_FALSE(event.is_set());
  });
}

TEST_CASE("Another kernel thread sets events for fibers that wait") {
  for (const uint32_t threads : {1, 2}) {
    const uint32_t rounds = test::seeds(2000);
    std::vector<Event> questions(rounds), answers(rounds);
    std::thread other;
    run(threads, [&] {
      other = std::thread([&] {
        for (uint32_t i = 0; i < rounds; ++i) {
          while (!questions[i].is_set()) std::this_thread::yield();
          answers[i].set();
        }
      });
      for (uint32_t i = 0; i < rounds; ++i) {
        questions[i].set();
        CHECK(answers[i].wait_until(monotonic_now() + 60 * kSecond));
      }
    });
    other.join();
  }
}

}  // namespace unet::fiber::sync_test
