// timer_heap_test.cc - the heap of deadlines against a sorted list.
#include "am/rpc/fiber/timer_heap.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "unet/base/random.h"
#include "unet/base/test_seeds.h"

namespace unet::fiber::timer_heap_test {

TEST_CASE("Fibers leave the heap by deadline, and then in the order in which they came") {
  for (uint64_t seed = 1; seed <= test::seeds(200); ++seed) {
    uint64_t random = seed;
    TimerHeap heap;
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<std::pair<Nanoseconds, Fiber*>> model;
    for (int step = 0; step < 300; ++step) {
      const uint64_t choice = next_random(random) % 8;
      if (choice < 4 || model.empty()) {
        fibers.push_back(std::make_unique<Fiber>());
        const Nanoseconds deadline = next_random(random) % 40;
        heap.add(*fibers.back(), deadline);
        model.emplace_back(deadline, fibers.back().get());
      } else if (choice < 6) {
        const auto victim = model.begin() + static_cast<ptrdiff_t>(next_random(random) % model.size());
        heap.remove(*victim->second);
        model.erase(victim);
      } else {
        const auto first = std::min_element(model.begin(), model.end(), [](auto& a, auto& b) { return a.first < b.first; });
        REQUIRE(heap.earliest() == first->first);
        REQUIRE(heap.take(first->first - 1 < first->first ? first->first - 1 : 0) == (first->first == 0 ? first->second : nullptr));
        if (first->first != 0) REQUIRE(heap.take(first->first) == first->second);
        model.erase(first);
      }
    }
    std::stable_sort(model.begin(), model.end(), [](auto& a, auto& b) { return a.first < b.first; });
    for (const auto& [deadline, fiber] : model) REQUIRE(heap.take(kNever - 1) == fiber);
    REQUIRE(heap.earliest() == kNever);
  }
}

}  // namespace unet::fiber::timer_heap_test
