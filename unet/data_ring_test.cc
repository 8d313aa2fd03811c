// data_ring_test.cc - the sender's allocator against a list of live messages: none overlap, none are lost, none stall.
#include "unet/data_ring.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <random>

namespace unet::data_ring_test {
namespace {

struct Live {
  uint64_t offset;
  uint32_t length;
  uint64_t position;
};

// The naive check: compares the message with all live ones.
bool overlaps(const std::deque<Live>& live, uint64_t offset, uint64_t length) {
  return std::any_of(live.begin(), live.end(), [&](const Live& each) {
    return offset < each.offset + each.length && each.offset < offset + length;
  });
}

// The largest message that fits contiguously behind the newest one, or at the beginning.
uint64_t room(const std::deque<Live>& live, uint64_t bytes) {
  if (live.empty()) return bytes;
  const uint64_t oldest = live.front().offset;
  const uint64_t end = round_up(live.back().offset + live.back().length, kCacheLine);
  if (end <= oldest) return oldest - end;         // wrapped: only the gap
  return std::max(bytes - end, oldest);           // behind the newest, or at the beginning
}

struct Model {
  Model(uint64_t bytes, uint32_t depth, uint64_t start) : ring(bytes, depth), bytes(bytes), depth(depth), position(start) {}

  // Returns false if the ring made any error.
  bool send(uint32_t length) {
    if (live.size() == depth) return true;  // all slots are in use
    const uint64_t offset = ring.reserve(length);
    if (offset == DataRing::kNone) return round_up(length, kCacheLine) > room(live, bytes);
    if (offset + length > bytes || offset % kCacheLine != 0 || overlaps(live, offset, length)) return false;
    ring.commit(offset, length, position);
    live.push_back({offset, length, position++});
    ++sent;
    return true;
  }
  void skip_slots(uint32_t count) { position += count; }
  // Frees every slot before the newest `keep` messages.
  bool credit(size_t keep) {
    while (live.size() > keep) live.pop_front();
    ring.credit(live.empty() ? position : live.front().position);
    return ring.empty() == live.empty();
  }

  DataRing ring;
  uint64_t bytes;
  uint32_t depth;
  uint64_t position;
  uint64_t sent = 0;
  std::deque<Live> live;
};

TEST_CASE("random traffic: live messages never overlap, and a message is refused only when it does not fit") {
  const uint32_t depth = GENERATE(uint32_t{4}, uint32_t{16}, uint32_t{256});
  const uint64_t start = GENERATE(uint64_t{0}, (uint64_t{1} << 32) - 500);
  const uint32_t largest = GENERATE(uint32_t{100}, uint32_t{5000}, kMessageMax);
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    std::mt19937 random(seed);
    Model model(4 * kMessageMax, depth, start);
    bool right = true;
    for (int i = 0; i < 5000 && right; ++i) {
      const auto choice = random() % 8;
      if (choice < 5) {
        right = model.send(1 + static_cast<uint32_t>(random() % largest));
      } else if (choice == 5) {
        model.skip_slots(static_cast<uint32_t>(random() % 3));  // small messages in between
      } else {
        right = model.credit(model.live.empty() ? 0 : random() % (model.live.size() + 1));
      }
    }
    CAPTURE(depth, start, largest, seed);
    CHECK(right);
    CHECK(model.sent > 500);
  }
}

TEST_CASE("every size fits into an empty ring, at the beginning, and whatever was before") {
  DataRing ring(4 * kMessageMax, 4);
  uint32_t position = 0;
  bool right = true;
  for (uint32_t length = 1; length <= kMessageMax; ++length) {
    const uint64_t offset = ring.reserve(length);
    right = right && offset == 0;
    ring.commit(offset, length, position++);
    ring.credit(position);
    right = right && ring.empty();
  }
  CHECK(right);
}

TEST_CASE("three messages of any size and a fourth are live at once, whatever the place they begin at") {
  bool right = true;
  for (uint32_t first = 1; first <= kMessageMax; first += 509) {
    Model model(4 * kMessageMax, 256, 0);
    right = right && model.send(first) && model.send(kMessageMax);
    right = right && model.credit(1);  // the ring now begins at `first`
    right = right && model.send(kMessageMax) && model.live.size() == 2;
    for (int i = 0; i < 40; ++i) {
      const size_t before = model.live.size();
      right = right && model.send(kMessageMax);
      if (model.live.size() == before) right = right && before >= 2 && model.credit(before - 1);
    }
  }
  CHECK(right);
}

TEST_CASE("a ring of exactly the messages' size is filled to the last byte, and no further") {
  DataRing ring(4 * 4096, 8);
  for (uint32_t i = 0; i < 4; ++i) {
    const uint64_t offset = ring.reserve(4096);
    REQUIRE(offset == i * 4096);
    ring.commit(offset, 4096, i);
  }
  CHECK(ring.reserve(1) == DataRing::kNone);
  ring.credit(1);
  CHECK(ring.reserve(4097) == DataRing::kNone);
  CHECK(ring.reserve(4096) == 0);
}

TEST_CASE("what does not fit before the end begins at the beginning, and the gap comes back with it") {
  DataRing ring(4 * 4096, 8);
  ring.commit(ring.reserve(3 * 4096), 3 * 4096, 0);
  ring.commit(ring.reserve(64), 64, 1);
  ring.credit(1);
  const uint64_t offset = ring.reserve(4096);
  REQUIRE(offset == 0);
  ring.commit(offset, 4096, 2);
  CHECK(ring.reserve(2 * 4096 + 64) == DataRing::kNone);
  CHECK(ring.reserve(2 * 4096) == 4096);
  ring.credit(3);
  CHECK(ring.empty());
  CHECK(ring.reserve(4 * 4096) == 0);
}

TEST_CASE("a reservation that is not committed takes nothing") {
  DataRing ring(4 * 4096, 8);
  for (int i = 0; i < 100; ++i) CHECK(ring.reserve(4096) == 0);
  ring.commit(0, 64, 0);
  for (int i = 0; i < 100; ++i) CHECK(ring.reserve(4096) == 64);
  CHECK(ring.reserve(4 * 4096 + 1) == DataRing::kNone);
}

// A reservation may be committed after credits that emptied the ring.
TEST_CASE("credits between reservation and commit do no harm") {
  DataRing ring(4 * 4096, 8);
  ring.commit(ring.reserve(3 * 4096), 3 * 4096, 0);
  ring.commit(ring.reserve(64), 64, 1);
  ring.credit(1);
  const uint64_t offset = ring.reserve(4096);
  REQUIRE(offset == 0);
  ring.credit(2);
  ring.commit(offset, 4096, 2);
  const uint64_t next = ring.reserve(64);
  CHECK((next == 4096 || next == DataRing::kNone));
  ring.credit(3);
  CHECK(ring.empty());
  CHECK(ring.reserve(4 * 4096) == 0);
}

// After a long message and billions of small ones, an endpoint asks for credits only at the next long one.
TEST_CASE("a message credited more than 2^31 slots ago is not taken for a live one") {
  DataRing ring(4 * 4096, 8);
  const uint64_t slots = GENERATE(uint64_t{1} << 31, (uint64_t{1} << 31) + 5, (uint64_t{3} << 30), (uint64_t{1} << 32) - 1,
                                  uint64_t{1} << 32, (uint64_t{1} << 32) + 1, (uint64_t{1} << 40) + 1);
  ring.commit(ring.reserve(4 * 4096), 4 * 4096, 0);
  CHECK(ring.reserve(64) == DataRing::kNone);
  ring.credit(slots);
  CHECK(ring.empty());
  CHECK(ring.reserve(4096) == 0);
}

}  // namespace
}  // namespace unet::data_ring_test
