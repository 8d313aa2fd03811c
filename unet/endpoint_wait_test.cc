// endpoint_wait_test.cc - what an endpoint owes its peers while it waits, and how a wait and an upcall end.
#include <pthread.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <thread>

#include "unet/test_world.h"

namespace unet {
namespace {

TEST_CASE("a receiver that only spins gives back what it released") {
  World world;
  const auto endpoint = world.endpoint();
  // Four large messages fill the data ring long before a quarter of the slots is used.
  const auto peer = world.local(*endpoint, 0, {.depth = 512, .data_bytes = 4 * kMessageMax});
  const std::vector<std::byte> large(kMessageMax);
  while (peer->send(large.data(), kMessageMax) == SendOutcome::sent) {}
  Message message;
  for (int i = 0; i < 4; ++i) {
    REQUIRE(endpoint->wait(kHang, Endpoint::kForever) == WaitOutcome::ready);
    REQUIRE(endpoint->receive(message));
    endpoint->release(message);
  }
  REQUIRE(endpoint->wait(kMillisecond, Endpoint::kForever) == WaitOutcome::timed_out);
  CHECK(peer->send(large.data(), kMessageMax) == SendOutcome::sent);
}

// Takes every descriptor that this process may still open.
class NoDescriptors {
 public:
  NoDescriptors() {
    UNET_CHECK(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(Descriptor(dup(0)).get());  // the lowest number that is free
    UNET_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { UNET_CHECK(setrlimit(RLIMIT_NOFILE, &before_) == 0); }

 private:
  rlimit before_{};
};

TEST_CASE("who lacks a descriptor to sleep on waits all the same") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  const bool with_ni = GENERATE(true, false);
  if (!with_ni) {
    world.service.die();
    REQUIRE_FALSE(world.context.alive());
  }
  const NoDescriptors none;
  CHECK(endpoint->wait(5 * kMillisecond, 0) == WaitOutcome::timed_out);
  std::thread sender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    peer->send(nullptr, 0);
  });
  CHECK(endpoint->wait(kHang, 0) == WaitOutcome::ready);
  sender.join();
}

TEST_CASE("an upcall whose thread cannot be started is an error, and can be started later") {
  World world;
  const auto endpoint = world.endpoint();
  pthread_attr_t before, huge;
  REQUIRE(pthread_getattr_default_np(&before) == 0);
  REQUIRE(pthread_attr_init(&huge) == 0);
  REQUIRE(pthread_attr_setstacksize(&huge, size_t{1} << 47) == 0);  // more than there are addresses
  REQUIRE(pthread_setattr_default_np(&huge) == 0);
  const auto upcall = [](Endpoint&, void*) {};
  const Status started = endpoint->start_upcall(upcall, nullptr);
  REQUIRE(pthread_setattr_default_np(&before) == 0);
  CHECK((!started && started.error().code == Errc::system && !started.error().text.empty()));
  CHECK(endpoint->start_upcall(upcall, nullptr));
}

TEST_CASE("masking gets its turn while upcalls follow each other without a break") {
  World world;
  const auto endpoint = world.endpoint();
  const auto peer = world.local(*endpoint, 0);
  REQUIRE(peer->send(nullptr, 0) == SendOutcome::sent);
  std::atomic<uint32_t> calls{0};
  // An upcall that takes nothing comes again at once, for ever.
  const auto upcall = [](Endpoint&, void* argument) {
    ++*static_cast<std::atomic<uint32_t>*>(argument);
    const Nanoseconds start = monotonic_now();
    while (monotonic_now() - start < 5 * kMicrosecond) {}
  };
  REQUIRE(endpoint->start_upcall(upcall, &calls));
  constexpr int kRounds = 100;
  int starved = 0;
  for (int i = 0; i < kRounds; ++i) {
    uint32_t before = calls;
    while (calls == before) std::this_thread::yield();
    before = calls;
    endpoint->mask();
    starved += calls - before > 5 ? 1 : 0;
    endpoint->unmask();
  }
  endpoint->stop_upcall();
  // Not one of them but for a thread that loses its core on the way into mask().
  CHECK(starved < kRounds / 10);
}

}  // namespace
}  // namespace unet
