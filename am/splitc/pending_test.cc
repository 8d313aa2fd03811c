// pending_test.cc - answers go to the oldest question, wherever in the ring that is.
#include "am/splitc/pending.h"

#include <catch2/catch.hpp>

#include <array>

using unet::splitc::PendingAnswers;

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
    pending.ask(nullptr, 0);  // the next round begins one further
    REQUIRE(pending.answer(0));
  }
}
