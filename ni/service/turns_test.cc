// turns_test.cc - the order in which clients are served.
#include "ni/service/turns.h"

#include <catch2/catch.hpp>

namespace unet::service::turns_test {
namespace {

constexpr uid_t kAda = 1, kBob = 2;

// Serves until nobody waits, each request for `cost` of its user, and returns how many of `user` came before `client` did.
uint32_t served_before(Turns& turns, uint32_t client, Nanoseconds cost, uid_t user) {
  uint32_t count = 0;
  while (const auto next = turns.next()) {
    if (next->ready.client == client) break;
    count += next->user == user ? 1 : 0;
    turns.charge(next->user, cost);
    turns.add(next->user, next->ready);
  }
  turns.clear();
  return count;
}

}  // namespace

TEST_CASE("a user with many busy connections waits like one with one") {
  Turns turns;
  for (uint32_t client = 0; client < 100; ++client) turns.add(kAda, {.client = client});
  turns.add(kBob, {.client = 1000});
  CHECK(served_before(turns, 1000, kMillisecond, kAda) <= 1);
}

TEST_CASE("a user has the time that it costs taken from it, also when that was known later") {
  Turns turns;
  turns.add(kAda, {.client = 1});
  turns.add(kBob, {.client = 2});
  turns.charge(kAda, 5 * kMillisecond);
  uint32_t bobs = 0;
  while (const auto next = turns.next()) {
    if (next->user == kAda) break;
    ++bobs;
    turns.charge(kBob, kMillisecond);
    turns.add(kBob, next->ready);
  }
  CHECK(bobs >= 5);
  CHECK(bobs <= 6);
}

TEST_CASE("clients of one user are served in turn") {
  Turns turns;
  turns.add(kAda, {.client = 1});
  turns.add(kAda, {.client = 2});
  for (const uint32_t client : {1u, 2u, 1u, 2u}) {
    const auto next = turns.next();
    REQUIRE(next);
    CHECK(next->ready.client == client);
    turns.add(kAda, next->ready);
  }
}

TEST_CASE("a user that rests saves nothing, and is forgotten when it owes nothing") {
  Turns turns;
  turns.add(kAda, {.client = 1});
  for (int i = 0; i < 1000; ++i) {
    const auto next = turns.next();
    turns.charge(kAda, kMillisecond);
    turns.add(kAda, next->ready);
  }
  turns.add(kBob, {.client = 2});
  CHECK(served_before(turns, 1, kMillisecond, kBob) <= 2);

  turns.add(kBob, {.client = 2});
  turns.add(kAda, {.client = 1});
  while (turns.next()) {
  }
  turns.clear();
  CHECK(turns.users() == 0);
}

}  // namespace unet::service::turns_test
