// heap_test.cc - spread memory's allocator: pieces never overlap, and freeing all restores the whole.
#include "am/splitc/heap.h"

#include <catch2/catch.hpp>

#include <random>
#include <vector>

namespace unet::splitc::heap_test {

namespace {

struct Piece {
  uint64_t offset, bytes;
};

bool overlap(const Piece& a, const Piece& b) { return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes; }

}  // namespace

TEST_CASE("pieces are aligned and none is larger than what there is") {
  SpreadHeap heap(4096, 1000);  // 15 lines, and a remainder that is never allocated
  REQUIRE(heap.largest_free() == 960);
  REQUIRE(heap.allocate(961) == 0);
  REQUIRE(heap.allocate(~uint64_t{0}) == 0);
  REQUIRE(heap.allocate(0) == 4096);
  REQUIRE(heap.allocate(65) == 4096 + 64);
  REQUIRE(heap.allocate(1) == 4096 + 192);
  REQUIRE(heap.in_use() == 256);
}

TEST_CASE("what was not allocated cannot be freed, nor twice") {
  SpreadHeap heap(64, 640);
  const uint64_t offset = heap.allocate(100);
  REQUIRE(!heap.free(offset + 64));
  REQUIRE(heap.free(offset));
  REQUIRE(!heap.free(offset));
  REQUIRE(!heap.free(0));
}

TEST_CASE("neighbours are joined, in whatever order they are freed") {
  const std::vector<std::vector<size_t>> orders{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    SpreadHeap heap(64, 192);
    const std::vector<uint64_t> pieces{heap.allocate(64), heap.allocate(64), heap.allocate(64)};
    REQUIRE(heap.allocate(1) == 0);
    for (const size_t each : order) REQUIRE(heap.free(pieces[each]));
    REQUIRE(heap.largest_free() == 192);
    REQUIRE(heap.in_use() == 0);
  }
}

TEST_CASE("at random: no two pieces overlap, two heaps that see the same calls agree") {
  std::mt19937 random(7);
  SpreadHeap heap(4096, 1 << 20), twin(4096, 1 << 20);
  std::vector<Piece> pieces;
  for (int i = 0; i < 20'000; ++i) {
    if (pieces.empty() || random() % 2 == 0) {
      const uint64_t bytes = 1 + random() % 10'000;
      const uint64_t offset = heap.allocate(bytes);
      REQUIRE(offset == twin.allocate(bytes));
      if (offset == 0) continue;
      const Piece made{offset, bytes};
      REQUIRE(offset % SpreadHeap::kAlignment == 0);
      for (const Piece& other : pieces) REQUIRE(!overlap(made, other));
      pieces.push_back(made);
    } else {
      const size_t which = random() % pieces.size();
      REQUIRE(heap.free(pieces[which].offset));
      REQUIRE(twin.free(pieces[which].offset));
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  for (const Piece& each : pieces) REQUIRE(heap.free(each.offset));
  REQUIRE(heap.largest_free() == 1 << 20);
}

}  // namespace unet::splitc::heap_test
