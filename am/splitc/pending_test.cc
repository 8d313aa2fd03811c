// pending_test.cc - answers go to the oldest question, wherever that is in the ring; arrivals of gets.
#include "am/splitc/pending.h"

#include <catch2/catch.hpp>

#include <array>

namespace unet::splitc::pending_test {

TEST_CASE("answers come in the order of the questions") {
  PendingAnswers pending;
  std::array<uint64_t, 3> values{};
  const uint64_t first = pending.ask(&values[0], 8);
  pending.ask(nullptr, 0);
  const uint64_t last = pending.ask(&values[2], 2);
  REQUIRE(pending.open() == 3);
  REQUIRE(!pending.is_answered(first));
  REQUIRE(pending.answer(0x1122334455667788));
  REQUIRE(pending.is_answered(first));
  REQUIRE(pending.answer(1));
  REQUIRE(!pending.is_answered(last));
  REQUIRE(pending.answer(0x1122334455667788));
  REQUIRE(pending.is_answered(last));
  REQUIRE(values == std::array<uint64_t, 3>{0x1122334455667788, 0, 0x7788});
}

TEST_CASE("an answer to no question is none") {
  PendingAnswers pending;
  REQUIRE(!pending.answer(1));
  pending.ask(nullptr, 0);
  REQUIRE(pending.answer(1));
  REQUIRE(!pending.answer(2));
}

TEST_CASE("as many as a ring has places may be open, round and round") {
  PendingAnswers pending;
  std::array<uint32_t, PendingAnswers::kMax> values{};
  for (uint32_t round = 0; round < 3; ++round) {
    for (auto& value : values) pending.ask(&value, 4);
    for (uint32_t i = 0; i < PendingAnswers::kMax; ++i) REQUIRE(pending.answer(1000 * round + i));
    for (uint32_t i = 0; i < PendingAnswers::kMax; ++i) REQUIRE(values[i] == 1000 * round + i);
    pending.ask(nullptr, 0);  // shifts the next round by one
    REQUIRE(pending.answer(0));
  }
}

TEST_CASE("a get is here when its own memory is, in the order of asking") {
  PendingGets pending;
  std::array<std::byte, 16> memory{};
  const MutableBytes all(memory), first = all.first(8), second = all.last(8);
  REQUIRE_FALSE(pending.arrive(first));
  pending.ask(first);
  pending.ask(second);
  for (const Bytes lie : {Bytes(), Bytes(second), Bytes(all), Bytes(all.first(7)), Bytes(all.subspan(1, 8))}) {
    REQUIRE_FALSE(pending.arrive(lie));
  }
  REQUIRE(pending.arrive(first));
  REQUIRE_FALSE(pending.arrive(first));
  REQUIRE(pending.arrive(second));
  REQUIRE_FALSE(pending.arrive(second));
  for (uint32_t i = 0; i < PendingGets::kMax; ++i) {
    REQUIRE_FALSE(pending.is_full());
    pending.ask(all.subspan(i % 16, 1));
  }
  REQUIRE(pending.is_full());
  for (uint32_t i = 0; i < PendingGets::kMax; ++i) REQUIRE(pending.arrive(all.subspan(i % 16, 1)));
}

}  // namespace unet::splitc::pending_test
