// fair_queue_test.cc - the order in which clients are served.
#include "ni/service/fair_queue.h"

#include <catch2/catch.hpp>

namespace unet::service::fair_queue_test {
namespace {

constexpr uid_t kAda = 1, kBob = 2;

// Serves requests until `client` is next or none waits, and charges each user `cost`. Returns how many requests of `user` came before
// `client`.
uint32_t served_before(FairQueue& queue, uint32_t client, Nanoseconds cost, uid_t user) {
  uint32_t count = 0;
  while (const auto next = queue.next()) {
    if (next->ready.client == client) break;
    count += next->user == user ? 1 : 0;
    queue.charge(next->user, cost);
    queue.add(next->user, next->ready);
  }
  queue.clear();
  return count;
}

}  // namespace

TEST_CASE("a user with many busy connections waits like one with one") {
  FairQueue queue;
  for (uint32_t client = 0; client < 100; ++client) queue.add(kAda, {.client = client});
  queue.add(kBob, {.client = 1000});
  CHECK(served_before(queue, 1000, kMillisecond, kAda) <= 1);
}

TEST_CASE("a user has the time that it costs taken from it, also when that was known later") {
  FairQueue queue;
  queue.add(kAda, {.client = 1});
  queue.add(kBob, {.client = 2});
  queue.charge(kAda, 5 * kMillisecond);
  uint32_t bobs = 0;
  while (const auto next = queue.next()) {
    if (next->user == kAda) break;
    ++bobs;
    queue.charge(kBob, kMillisecond);
    queue.add(kBob, next->ready);
  }
  CHECK(bobs >= 5);
  CHECK(bobs <= 6);
}

TEST_CASE("clients of one user are served in turn") {
  FairQueue queue;
  queue.add(kAda, {.client = 1});
  queue.add(kAda, {.client = 2});
  for (const uint32_t client : {1u, 2u, 1u, 2u}) {
    const auto next = queue.next();
    REQUIRE(next);
    CHECK(next->ready.client == client);
    queue.add(kAda, next->ready);
  }
}

TEST_CASE("a user that rests saves nothing, and is forgotten when it owes nothing") {
  FairQueue queue;
  queue.add(kAda, {.client = 1});
  for (int i = 0; i < 1000; ++i) {
    const auto next = queue.next();
    queue.charge(kAda, kMillisecond);
    queue.add(kAda, next->ready);
  }
  queue.add(kBob, {.client = 2});
  CHECK(served_before(queue, 1, kMillisecond, kBob) <= 2);

  queue.add(kBob, {.client = 2});
  queue.add(kAda, {.client = 1});
  while (queue.next()) {
  }
  queue.clear();
  CHECK(queue.users() == 0);
}

}  // namespace unet::service::fair_queue_test
