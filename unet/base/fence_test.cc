// fence_test.cc - one thread with the light fence and one with the heavy fence never both miss the other's store.
#include "unet/base/fence.h"

#include <catch2/catch.hpp>
#include <thread>

#include "unet/base/time.h"

namespace unet::fence_test {
namespace {

struct alignas(64) Line {
  std::atomic<uint32_t> value{0};
};

void wait_for(const Line& line, uint32_t round) {
  for (uint32_t spins = 0; line.value.load(std::memory_order_acquire) < round; ++spins) {
    if (spins > 1'000) std::this_thread::yield();
  }
}

// The store-buffering test. Both threads store at an agreed moment, in cycles with some jitter, and then load. Without the fences, and with
// two free cores, x86 lets both loads miss in one round of ten.
TEST_CASE("a store before the light fence or one before the heavy fence is always seen by the other side") {
  constexpr uint32_t kRounds = 3'000;
  Line message, asleep, started, finished;
  std::atomic<uint64_t> moment{0};
  uint32_t light_saw = 0, missed = 0;

  std::thread sender([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      wait_for(started, round);
      const uint64_t at = moment.load(std::memory_order_relaxed) + round % 401 - 200;
      while (cycles() < at) {}
      message.value.store(round, std::memory_order_relaxed);
      light_fence();
      light_saw = asleep.value.load(std::memory_order_relaxed);
      finished.value.store(round, std::memory_order_release);
    }
  });
  for (uint32_t round = 1; round <= kRounds; ++round) {
    const uint64_t at = cycles() + 3000;
    moment.store(at, std::memory_order_relaxed);
    started.value.store(round, std::memory_order_release);
    while (cycles() < at) {}
    asleep.value.store(round, std::memory_order_relaxed);
    heavy_fence();
    const uint32_t heavy_saw = message.value.load(std::memory_order_relaxed);
    wait_for(finished, round);
    if (light_saw != round && heavy_saw != round) ++missed;
  }
  sender.join();
  CHECK(missed == 0);
}

}  // namespace
}  // namespace unet::fence_test
