// buffer_pool_test.cc - receive buffers: runs, false entries, buffers given back, long runs found among scattered ones.
#include "ni/engine/buffer_pool.h"

#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <vector>

namespace unet::engine::buffer_pool_test {
namespace {

using Outcome = BufferPool::Outcome;

struct Pool {
  explicit Pool(uint32_t buffers)
      : slots(std::bit_ceil(buffers)),
        held((buffers + 63) / 64),
        writer(slots.data(), depth()),
        pool(slots.data(), depth(), buffers, held.data(), &position) {}
  uint32_t depth() const { return static_cast<uint32_t>(slots.size()); }
  Outcome take(uint32_t count) {
    runs.count = 0;
    lies = 0;
    return pool.take(count, runs, lies);
  }
  // Brings all of the queue to the private set.
  void fetch_all() {
    for (uint32_t i = 0; i < depth() / 64 + 1; ++i) {
      REQUIRE(take(1) == Outcome::taken);
      pool.give_back(runs);
    }
  }
  std::vector<uint32_t> taken() const {
    std::vector<uint32_t> buffers;
    for (uint32_t i = 0; i < runs.count; ++i) {
      for (uint32_t k = 0; k < runs.runs[i].count; ++k) buffers.push_back(runs.runs[i].first + k);
    }
    return buffers;
  }

  std::vector<FreeSlot> slots;
  std::vector<uint64_t> held;
  uint32_t position = 0;
  FreeWriter writer;
  BufferPool pool;
  RunList runs;
  uint32_t lies = 0;
};

}  // namespace

TEST_CASE("the lowest buffers are taken first, and long messages in one piece where there is one") {
  Pool p(256);
  for (const uint32_t buffer : {200u, 3u, 9u, 4u, 10u, 11u}) p.writer.push(buffer);
  REQUIRE(p.take(1) == Outcome::taken);
  CHECK(p.taken() == std::vector<uint32_t>{3});
  REQUIRE(p.take(3) == Outcome::taken);
  CHECK(p.taken() == std::vector<uint32_t>{9, 10, 11});
  CHECK(p.runs.count == 1);
  p.writer.push(3);
  REQUIRE(p.take(3) == Outcome::taken);
  CHECK(p.taken() == std::vector<uint32_t>{3, 4, 200});
  CHECK(p.runs.count == 2);
  CHECK(p.take(1) == Outcome::none);
}

TEST_CASE("a buffer that comes back is used again at once") {
  Pool p(64);
  for (uint32_t buffer = 0; buffer < 64; ++buffer) p.writer.push(buffer);
  for (uint32_t round = 0; round < 1'000; ++round) {
    REQUIRE(p.take(1) == Outcome::taken);
    REQUIRE(p.taken() == std::vector<uint32_t>{0});
    p.writer.push(0);
  }
}

TEST_CASE("the last buffer and the first are two runs") {
  Pool p(16);
  for (const uint32_t buffer : {14u, 15u, 0u, 1u}) p.writer.push(buffer);
  REQUIRE(p.take(4) == Outcome::taken);
  CHECK(p.runs.count == 2);
}

TEST_CASE("too few buffers: none is taken, all are there later") {
  Pool p(16);
  for (uint32_t buffer = 0; buffer < 5; ++buffer) p.writer.push(buffer);
  CHECK(p.take(6) == Outcome::none);
  CHECK(p.runs.count == 0);
  p.writer.push(5);
  REQUIRE(p.take(6) == Outcome::taken);
  CHECK(p.taken() == std::vector<uint32_t>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("false entries are skipped and counted, a bounded number at a time") {
  Pool p(256);
  p.writer.push(256);
  p.writer.push(7);
  REQUIRE(p.take(1) == Outcome::taken);
  CHECK(p.taken() == std::vector<uint32_t>{7});
  CHECK(p.lies == 1);
  for (int i = 0; i < 200; ++i) p.writer.push(0xFFFFFFFF);
  p.writer.push(8);
  uint32_t lies = 0, calls = 0;
  while (p.take(1) != Outcome::taken) {
    CHECK(p.lies <= 65);
    lies += p.lies;
    REQUIRE(++calls < 10);
  }
  CHECK(lies + p.lies == 200);
}

TEST_CASE("buffers given back are taken again") {
  Pool p(16);
  for (uint32_t buffer = 0; buffer < 8; ++buffer) p.writer.push(buffer);
  REQUIRE(p.take(4) == Outcome::taken);
  p.pool.give_back(p.runs);
  REQUIRE(p.take(2) == Outcome::taken);
  CHECK(p.taken() == std::vector<uint32_t>{0, 1});
  REQUIRE(p.take(4) == Outcome::taken);
  CHECK(p.taken() == std::vector<uint32_t>{2, 3, 4, 5});
}

TEST_CASE("a buffer given back twice is there once") {
  Pool p(16);
  p.writer.push(5);
  p.writer.push(5);
  REQUIRE(p.take(1) == Outcome::taken);
  CHECK(p.lies == 1);
  const RunList first = p.runs;
  p.writer.push(5);  // the client names it although a message lies there: that is its own loss
  REQUIRE(p.take(1) == Outcome::taken);
  p.pool.give_back(first);
  p.pool.give_back(p.runs);
  REQUIRE(p.take(1) == Outcome::taken);
  CHECK(p.take(1) == Outcome::none);
}

TEST_CASE("a buffer named again and again is a lie each time, a bounded number of which is looked at") {
  Pool p(1'024);
  // Every second buffer: too scattered for one message of many, so that all of the queue is looked at.
  for (uint32_t buffer = 0; buffer < 128; buffer += 2) p.writer.push(buffer);
  for (int i = 0; i < 900; ++i) p.writer.push(4);
  CHECK(p.take(32) == Outcome::fragmented);
  CHECK(p.lies == 64);
  // The rest is still in the queue: it is looked at for the next message, as far.
  CHECK(p.take(32) == Outcome::fragmented);
  CHECK(p.lies == 64);
}

TEST_CASE("buffers that the client scatters cost a bounded search, which the buffers that it gives pay") {
  constexpr uint32_t kBuffers = 8'192;
  const uint32_t count = GENERATE(2u, 13u);  // found in pieces; in too many pieces
  Pool p(kBuffers);
  for (uint32_t buffer = 0; buffer < kBuffers; buffer += 2) p.writer.push(buffer);
  for (int i = 0; i < 200; ++i) p.take(1);  // all of the queue is in the private set now
  const uint64_t before = p.pool.searched();
  uint32_t given = 0;
  constexpr uint32_t kMessages = 500;
  for (uint32_t i = 0; i < kMessages; ++i) {
    CHECK(p.take(count) == (count == 2 ? Outcome::taken : Outcome::fragmented));
    for (const uint32_t buffer : p.taken()) p.writer.push(buffer), ++given;
  }
  // A step is a word or a run that is longer than others, so a word with thirty short runs is one step.
  CHECK(p.pool.searched() - before <= 256 + 16 * kMessages + 4 * given);
}

TEST_CASE("a message of many buffers is found in long runs behind many that are shorter") {
  Pool p(8'192);
  // Each run is as long as the one thirteen before it, and one more.
  for (uint32_t run = 0, buffer = 0, last = 0; last < 8'000; ++run, ++buffer) {
    for (last = buffer + 1 + run / 13; buffer < last; ++buffer) p.writer.push(buffer);
  }
  p.fetch_all();
  REQUIRE(p.take(200) == Outcome::taken);
  CHECK(p.runs.count <= 12);
}

TEST_CASE("a run goes on over words, and a word holds the longest of several") {
  Pool p(1'024);
  const auto push = [&](uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) p.writer.push(first + i);
  };
  push(3, 2), push(10, 5), push(60, 68), push(130, 1), push(190, 3), push(256, 64);
  p.fetch_all();
  REQUIRE(p.take(70) == Outcome::taken);
  CHECK(p.runs.count == 2);
  CHECK(p.runs.runs[0].first == 60);
  CHECK(p.runs.runs[0].count == 68);
  REQUIRE(p.take(4) == Outcome::taken);
  CHECK(p.runs.count == 1);
}

TEST_CASE("a long run far behind scattered buffers is found") {
  Pool p(4'096);
  for (uint32_t buffer = 0; buffer < 2'048; buffer += 2) p.writer.push(buffer);
  for (uint32_t buffer = 2'100; buffer < 2'300; ++buffer) p.writer.push(buffer);
  REQUIRE(p.take(190) == Outcome::taken);
  CHECK(p.taken().front() == 2'100);
}

TEST_CASE("whatever the order of the queue, what can be named by twelve runs is found") {
  std::mt19937 random(1);
  for (uint32_t round = 0; round < 500; ++round) {
    const uint32_t buffers = 16 + static_cast<uint32_t>(random() % 500);
    Pool p(buffers);
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < buffers; ++i) order.push_back(i);
    std::shuffle(order.begin(), order.end(), random);
    for (const uint32_t buffer : order) p.writer.push(buffer);
    const uint32_t count = 1 + static_cast<uint32_t>(random() % buffers);
    REQUIRE(p.take(count) == Outcome::taken);  // all are free: one run does
    const auto taken = p.taken();
    REQUIRE(taken.size() == count);
    REQUIRE(std::set<uint32_t>(taken.begin(), taken.end()).size() == count);
    REQUIRE(taken[count - 1] < buffers);
  }
}

TEST_CASE("no buffer is lost or handed out twice, whatever is taken and given back") {
  std::mt19937 random(2);
  constexpr uint32_t kBuffers = 100;
  Pool p(kBuffers);
  std::set<uint32_t> with_client;
  std::vector<RunList> with_messages;
  for (uint32_t buffer = 0; buffer < kBuffers; ++buffer) p.writer.push(buffer);
  for (uint32_t round = 0; round < 20'000; ++round) {
    switch (random() % 3) {
      case 0:
        if (p.take(1 + static_cast<uint32_t>(random() % 20)) == Outcome::taken) {
          for (const uint32_t buffer : p.taken()) REQUIRE(with_client.insert(buffer).second);
          with_messages.push_back(p.runs);
        }
        break;
      case 1:  // the engine drops a message, or the client releases one, in any order
        if (!with_messages.empty()) {
          std::swap(with_messages[random() % with_messages.size()], with_messages.back());
          p.runs = with_messages.back();
          with_messages.pop_back();
          for (const uint32_t buffer : p.taken()) with_client.erase(buffer);
          if (random() % 2 == 0) {
            p.pool.give_back(p.runs);
          } else {
            for (const uint32_t buffer : p.taken()) p.writer.push(buffer);
          }
        }
        break;
      default: break;
    }
  }
  for (const RunList& runs : with_messages) p.pool.give_back(runs);
  uint32_t all = 0;
  while (p.take(1) == Outcome::taken) ++all;
  CHECK(all == kBuffers);
}

}  // namespace unet::engine::buffer_pool_test
