// fiber_test.cc - fibers on one thread: order, results, parking, time, and ten thousand at once.
#include "am/rpc/fiber/fiber.h"

#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "unet/base/test_seeds.h"

namespace unet::fiber::fiber_test {
namespace {

template <typename Function>
void run(Function&& function, SchedulerOptions options = {}) {
  options.threads = 1;
  auto scheduler = Scheduler::create(options);
  REQUIRE(scheduler.has_value());
  REQUIRE((*scheduler)->run(std::forward<Function>(function)).has_value());
}

}  // namespace

TEST_CASE("Fibers run in the order in which they were started, and yield in turn") {
  std::string order;
  run([&] {
    Handle<void> handles[3];
    for (char each : {'a', 'b', 'c'}) {
      handles[each - 'a'] = spawn([&order, each] {
        for (int i = 0; i < 3; ++i) {
          order += each;
          yield();
        }
      });
    }
    order += '-';
    for (auto& handle : handles) handle.join();
  });
  CHECK(order == "-abcabcabc");
}

TEST_CASE("join returns the result, before or after the fiber has ended") {
  run([] {
    auto number = spawn([] { return 42; });
    auto text = spawn([] { return std::string(100, 'x'); });
    auto owner = spawn([pointer = std::make_unique<int>(7)]() mutable { return std::move(pointer); });
    CHECK_FALSE(number.has_ended());
    yield();
    CHECK(number.has_ended());
    CHECK(number.join() == 42);
    CHECK_FALSE(number);
    CHECK(text.join() == std::string(100, 'x'));
    CHECK(*owner.join() == 7);
    auto slow = spawn([] {
      yield();
      yield();
      return 1;
    });
    CHECK(slow.join() == 1);
  });
}

TEST_CASE("A function is destroyed in its fiber, before join returns") {
  auto shared = std::make_shared<int>(0);
  run([&] {
    auto handle = spawn([copy = shared] { ++*copy; });
    CHECK(shared.use_count() == 2);
    handle.join();
    CHECK(shared.use_count() == 1);
  });
  CHECK(*shared == 1);
}

TEST_CASE("run returns when the last detached fiber has ended, and may be called again") {
  auto scheduler = Scheduler::create({.threads = 1});
  for (int round = 0; round < 3; ++round) {
    int ended = 0;
    REQUIRE((*scheduler)->run([&] {
      for (int i = 0; i < 10; ++i) {
        spawn([&ended, i] {
          for (int turn = 0; turn < i; ++turn) yield();
          ++ended;
        }).detach();
      }
    }));
    CHECK(ended == 10);
    CHECK(current() == nullptr);
  }
}

TEST_CASE("An unpark before park is stored, once") {
  run([] {
    Fiber& self = *current();
    unpark(self);
    unpark(self);
    park();
    CHECK_FALSE(park_until(monotonic_now() + kMillisecond));
    auto waker = spawn([&self] { unpark(self); });
    CHECK(park_until(monotonic_now() + 10 * kSecond));
    waker.join();
  });
}

TEST_CASE("Timed waits end in the order of their deadlines, and an unpark ends them early") {
  std::vector<int> order;
  run([&] {
    const Nanoseconds start = monotonic_now();
    std::vector<Handle<void>> handles;
    for (const int delay : {5, 1, 4, 2, 3, 3}) {
      handles.push_back(spawn([&order, start, delay] {
        CHECK_FALSE(park_until(start + static_cast<Nanoseconds>(delay) * 2 * kMillisecond));
        CHECK(monotonic_now() >= start + static_cast<Nanoseconds>(delay) * 2 * kMillisecond);
        order.push_back(delay);
      }));
    }
    auto early = spawn([&order] {
      CHECK(park_until(monotonic_now() + 100 * kSecond));
      order.push_back(0);
    });
    yield();
    unpark(early.fiber());
    early.join();
    for (auto& handle : handles) handle.join();
    CHECK(monotonic_now() - start >= 10 * kMillisecond);
  });
  CHECK(order == std::vector<int>{0, 1, 2, 3, 3, 4, 5});
}

TEST_CASE("Fibers that never wait let timers and others run") {
  run([] {
    bool stop = false;
    auto busy = spawn([&stop] {
      while (!stop) yield();
    });
    auto busier = spawn([&stop] {
      while (!stop) {
        for (const Nanoseconds start = monotonic_now(); monotonic_now() - start < 100 * kMicrosecond;) {
        }
        yield();
      }
    });
    const Nanoseconds start = monotonic_now();
    fiber::sleep(5 * kMillisecond);
    CHECK(monotonic_now() - start < 500 * kMillisecond);
    stop = true;
    busy.join();
    busier.join();
  });
}

TEST_CASE("Ten thousand fibers wait at the same time") {
  const uint32_t count = test::kSanitized ? 1000 : 10'000;
  uint64_t sum = 0;
  run([&] {
    std::vector<Handle<uint32_t>> handles;
    for (uint32_t i = 0; i < count; ++i) {
      handles.push_back(spawn([i] {
        park();
        return i;
      }));
      REQUIRE(handles.back());
    }
    yield();
    for (auto& handle : handles) unpark(handle.fiber());
    for (auto& handle : handles) sum += handle.join();
  });
  CHECK(sum == uint64_t{count} * (count - 1) / 2);
}

TEST_CASE("spawn gives no fiber beyond the limit, and stacks are used again") {
  run(
      [] {
        for (int round = 0; round < 100; ++round) {
          std::vector<Handle<void>> handles;
          for (int i = 0; i < 7; ++i) handles.push_back(spawn([] { yield(); }));
          CHECK(handles.back());
          CHECK_FALSE(spawn([] {}));
          for (auto& handle : handles) handle.join();
        }
      },
      {.fibers = 8});
}

TEST_CASE("A stopped scheduler abandons fibers that wait for ever") {
  auto scheduler = Scheduler::create({.threads = 1});
  int reached = 0;
  REQUIRE((*scheduler)->run([&] {
    spawn([&] {
      ++reached;
      park();
      reached = 100;
    }).detach();
    yield();
    (*scheduler)->stop();
    yield();
    reached = 200;
  }));
  CHECK(reached == 1);
}

TEST_CASE("Fibers recurse within their stacks") {
  run([] {
    struct Deep {
      static uint32_t down(uint32_t depth) {
        std::byte frame[256];
        asm volatile("" : : "r"(frame) : "memory");
        yield();
        return depth == 0 ? 0 : 1 + down(depth - 1);
      }
    };
    std::vector<Handle<uint32_t>> handles;
    for (int i = 0; i < 20; ++i) handles.push_back(spawn([] { return Deep::down(30); }));
    for (auto& handle : handles) CHECK(handle.join() == 30);
  });
}

}  // namespace unet::fiber::fiber_test
