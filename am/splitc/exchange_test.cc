// exchange_test.cc - every rank gets every cell in any order of messages: flat and by rounds, direct and not, up to 64 ranks and more.
#include "am/splitc/exchange.h"

#include <catch2/catch.hpp>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "unet/base/simulator.h"

namespace unet::splitc::exchange_test {
namespace {

// Ranks. Their messages arrive in order per pair, and in any order otherwise. The ranks of one group are direct to each other.
class Ranks : public Simulator {
 public:
  Ranks(uint32_t size, uint32_t group, uint64_t seed) : Simulator(seed), size_(size) {
    for (Rank rank = 0; rank < size; ++rank) {
      areas_.push_back(std::make_unique<Area>());
      machines_.push_back(std::make_unique<Exchange>(rank, size, area(rank)));
    }
    for (Rank a = 0; a < size; ++a) {
      for (Rank b = 0; b < size; ++b) {
        if (a != b && a / group == b / group) machines_[a]->set_direct(b, area(b));
      }
    }
  }
  Exchange& operator[](Rank rank) { return *machines_[rank]; }
  void begin(Rank rank, Call call, Bytes cell) { machines_[rank]->begin(call, cell); }
  // Sends the messages of `rank`, lets some arrive, and returns whether `rank` is done.
  bool step(Rank rank) {
    while (const auto message = machines_[rank]->poll_message()) {
      const SimLinkOptions options{.jitter = 1000 * Nanoseconds{size_}, .in_order = true};
      SimLink& link = links_.try_emplace({rank, message->to}, *this, options).first->second;
      const std::vector<std::byte> cells(message->cells.begin(), message->cells.end());
      link.send(now(), 0, [this, rank, to = message->to, round = message->round, mark = message->mark, cells](bool) {
        if (!machines_[to]->handle(rank, round, mark, cells)) ++refused;
      });
    }
    advance(now() + 4);
    return machines_[rank]->poll_done();
  }
  Rank any() { return static_cast<Rank>(below(size_)); }
  uint64_t refused = 0;

 private:
  struct Area {
    alignas(kLine) std::array<std::byte, 3 * kLine> bytes{};
  };
  ControlArea area(Rank rank) { return ControlArea(areas_[rank]->bytes); }
  const uint32_t size_;
  std::vector<std::unique_ptr<Area>> areas_;
  std::vector<std::unique_ptr<Exchange>> machines_;
  std::map<std::pair<Rank, Rank>, SimLink> links_;
};

uint64_t value_of(Rank rank, uint32_t number) { return uint64_t{rank} << 32 | number; }

// Each rank runs `count` exchanges at its own pace and checks all cells of each.
void go_through(uint32_t size, uint32_t group, uint32_t count, uint64_t seed) {
  Ranks ranks(size, group, seed);
  std::vector<uint32_t> done(size, 0);
  const auto begin = [&](Rank rank) {
    const uint64_t value = value_of(rank, done[rank]);
    ranks.begin(rank, Call::all_reduce, as_bytes(&value, sizeof value));
  };
  for (Rank rank = 0; rank < size; ++rank) begin(rank);
  uint32_t left = size;
  for (uint64_t steps = 0; left != 0; ++steps) {
    REQUIRE(steps < uint64_t{size} * count * 10'000);
    const Rank rank = ranks.any();
    if (done[rank] == count || !ranks.step(rank)) continue;
    for (Rank other = 0; other < size; ++other) {
      uint64_t value = 0;
      REQUIRE(ranks[rank].cell(other).size() == sizeof value);
      std::memcpy(&value, ranks[rank].cell(other).data(), sizeof value);
      REQUIRE(value == value_of(other, done[rank]));
    }
    if (++done[rank] == count) {
      --left;
    } else {
      begin(rank);
    }
  }
  REQUIRE(ranks.refused == 0);
  for (Rank rank = 0; rank < size; ++rank) REQUIRE(!ranks[rank].fault());
}

}  // namespace

TEST_CASE("everybody gets everybody's cell: 1 to 20 ranks, each alone, in pairs, and all together") {
  for (uint32_t size = 1; size <= 20; ++size) {
    for (const uint32_t group : {1u, 2u, 32u}) go_through(size, group, 5, size * 100 + group);
  }
}

TEST_CASE("64 ranks, and sizes around powers of two") {
  for (const uint32_t size : {31u, 32u, 33u, 63u, 64u, 65u}) go_through(size, 4, 3, size);
}

TEST_CASE("nobody is through before all have begun") {
  for (const uint32_t size : {2u, 7u, 16u, 17u, 40u}) {
    Ranks ranks(size, 2, size);
    for (Rank rank = 1; rank < size; ++rank) ranks.begin(rank, Call::barrier, {});
    for (int i = 0; i < 20'000; ++i) {
      const Rank rank = 1 + ranks.any() % (size - 1);
      REQUIRE(!ranks.step(rank));
    }
    ranks.begin(0, Call::barrier, {});
    std::vector<bool> through(size, false);
    size_t count = 0;
    for (int i = 0; count < size; ++i) {
      REQUIRE(i < 1'000'000);
      const Rank rank = ranks.any();
      if (through[rank] || !ranks.step(rank)) continue;
      through[rank] = true;
      ++count;
    }
  }
}

TEST_CASE("who waits for whom: a rank that has not begun is awaited by somebody") {
  Ranks ranks(3, 1, 1);
  ranks.begin(0, Call::barrier, {});
  ranks.begin(2, Call::barrier, {});
  for (int i = 0; i < 100; ++i) {
    ranks.step(0);
    ranks.step(2);
  }
  REQUIRE(ranks[0].awaited() == 1);
  REQUIRE(ranks[2].awaited() == 1);
}

TEST_CASE("a rank in another call is out of step, and told so by name") {
  for (const uint32_t size : {2u, 5u, 17u}) {
    Ranks ranks(size, 2, size);
    for (Rank rank = 0; rank < size; ++rank) ranks.begin(rank, rank == 1 ? Call::all_scan : Call::barrier, {});
    bool told = false;
    for (int i = 0; i < 100'000 && !told; ++i) {
      const Rank rank = ranks.any();
      ranks.step(rank);
      if (!ranks[rank].fault()) continue;
      told = true;
      REQUIRE(ranks[rank].fault()->find("out of step") == 0);
      REQUIRE(ranks[rank].fault()->find("all_scan") != std::string::npos);
      REQUIRE(ranks[rank].fault()->find("barrier") != std::string::npos);
    }
    REQUIRE(told);
  }
}

TEST_CASE("values of another size are told, too") {
  Ranks ranks(2, 2, 1);
  const uint64_t value = 1;
  ranks.begin(0, Call::all_reduce, as_bytes(&value, 8));
  ranks.begin(1, Call::all_reduce, as_bytes(&value, 4));
  REQUIRE(!ranks.step(0));
  REQUIRE(ranks[0].fault() == "all_reduce with another type at rank 1");
}

TEST_CASE("another root or operation is told, flat and by rounds") {
  for (const uint32_t size : {2u, 5u, 17u}) {
    for (const uint32_t group : {1u, 32u}) {
      Ranks ranks(size, group, size);
      const uint64_t value = 1;
      for (Rank rank = 0; rank < size; ++rank) ranks[rank].begin(Call::all_broadcast, as_bytes(&value, 8), rank == 1 ? kRanksMax - 1 : 0);
      bool told = false;
      for (int i = 0; i < 100'000 && !told; ++i) {
        const Rank rank = ranks.any();
        ranks.step(rank);
        told = ranks[rank].fault().has_value();
        if (told) REQUIRE(ranks[rank].fault()->find("all_broadcast with another root or operation at rank") == 0);
      }
      REQUIRE(told);
    }
  }
}

TEST_CASE("messages that nobody can have sent change nothing") {
  const std::array<std::byte, kCellBytes + 1> long_cell{};
  for (const uint32_t size : {4u, 20u}) {
    Ranks ranks(size, 1, 1);
    ranks.begin(0, Call::barrier, {});
    const auto message = ranks[0].poll_message();
    REQUIRE(message);
    const uint64_t mark = message->mark;
    REQUIRE(!ranks[0].handle(0, 0, mark, {}));          // itself
    REQUIRE(!ranks[0].handle(size, 0, mark, {}));
    REQUIRE(!ranks[0].handle(1, 31, mark, {}));
    REQUIRE(!ranks[0].handle(1, 0, mark + (uint64_t{2} << Exchange::kNumberShift), {}));  // two exchanges ahead
    REQUIRE(!ranks[0].handle(1, 0, 0, {}));             // a finished exchange
    REQUIRE(!ranks[0].handle(1, 0, mark, long_cell));
    REQUIRE(ranks[0].handle(1, 0, mark, {}));
  }
}

}  // namespace unet::splitc::exchange_test
