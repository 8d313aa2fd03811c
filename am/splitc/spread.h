// spread.h - spread pointers and arrays: index i lies at rank i mod P; part of Split-C's public API.
//
//   auto a = all_spread_malloc<double>(n);           // double A[n]::        one element per index, dealt to the ranks in turn
//   auto b = all_spread_malloc<double>(procs(), m);  // double B[PROCS]::[m] a row of m at each rank
//   write(a[i], x);  bulk_put(b[j], row, m);
//   for (double& each : b.mine(0)) each = 0;         // the part that is here, as ordinary memory
#pragma once

#include <cstdint>
#include <span>

#include "am/splitc/global.h"
#include "am/splitc/node.h"

namespace unet::splitc {

// T *spread: adding 1 goes to the next rank, and from the last rank to the next block of the first.
template <typename T>
class Spread {
 public:
  constexpr Spread() noexcept = default;
  // `offset`: in each rank's memory. `block`: elements per index.
  constexpr Spread(uint64_t offset, uint64_t block) noexcept : offset_(offset), block_(block) {}

  constexpr uint64_t offset() const noexcept { return offset_; }
  constexpr uint64_t block() const noexcept { return block_; }
  constexpr explicit operator bool() const noexcept { return offset_ != 0; }

  // Returns the first element of index `i`, counted from where this points.
  Global<T> operator[](uint64_t i) const {
    const uint64_t at = index_ + i;
    const uint32_t procs = current_node->size();
    return Global<T>(static_cast<Rank>(at % procs), offset_ + at / procs * block_ * sizeof(T));
  }
  operator Global<T>() const { return (*this)[0]; }
  Reference<T> operator*() const { return *(*this)[0]; }
  constexpr Spread operator+(uint64_t n) const noexcept {
    Spread moved = *this;
    moved.index_ += n;
    return moved;
  }
  constexpr Spread operator-(uint64_t n) const noexcept { return *this + (0 - n); }
  constexpr Spread& operator+=(uint64_t n) noexcept { return *this = *this + n; }
  constexpr Spread& operator++() noexcept { return *this += 1; }
  friend constexpr bool operator==(const Spread&, const Spread&) noexcept = default;

  // Returns the array's offset; the job ends if this points to another element than the first.
  uint64_t offset_of_all(const char* call) const {
    if (__builtin_expect(index_ != 0, 0)) current_node->end_moved(call, index_);
    return offset_;
  }
  // Returns the beginning of `rank`'s part: all its blocks, one after the other.
  Global<T> on(Rank rank) const { return Global<T>(rank, offset_of_all("on")); }
  // Returns this rank's block number `slot`, which has index slot * P + rank.
  std::span<T> mine(uint64_t slot) const {
    const Address at = Address(current_node->rank(), offset_of_all("mine")).moved(static_cast<int64_t>(slot * block_ * sizeof(T)));
    return {static_cast<T*>(current_node->local(at, block_ * sizeof(T), "mine")), block_};
  }

 private:
  uint64_t offset_ = 0;
  uint64_t block_ = 1;
  uint64_t index_ = 0;
};

// Collective: allocates `count` indices of `block` elements. Each rank holds equally many. The memory is not cleared.
template <typename T>
Spread<T> all_spread_malloc(uint64_t count, uint64_t block = 1) {
  static_assert(std::is_trivially_copyable_v<T>);
  Node& node = *current_node;
  const uint64_t slots = count / node.size() + (count % node.size() != 0 ? 1 : 0);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(slots, block, &bytes) || __builtin_mul_overflow(bytes, sizeof(T), &bytes)) bytes = ~uint64_t{0};
  return {node.all_spread_malloc(bytes), block};
}
template <typename T>
void all_spread_free(Spread<T> array) {
  current_node->all_spread_free(array.offset_of_all("all_spread_free"));
}

// The indices below `count` that belong to this rank: for (uint64_t i : my_1d(n)).
class MyIndices {
 public:
  struct End {};
  class Iterator {
   public:
    Iterator(uint64_t at, uint64_t step, uint64_t count) noexcept : at_(at), step_(step), count_(count) {}
    uint64_t operator*() const noexcept { return at_; }
    Iterator& operator++() noexcept {
      at_ += step_;
      return *this;
    }
    bool operator!=(End) const noexcept { return at_ < count_; }

   private:
    uint64_t at_, step_, count_;
  };
  explicit MyIndices(uint64_t count) noexcept : count_(count) {}
  Iterator begin() const { return {current_node->rank(), current_node->size(), count_}; }
  End end() const noexcept { return {}; }

 private:
  uint64_t count_;
};
inline MyIndices my_1d(uint64_t count) noexcept { return MyIndices(count); }
// Deals rows * columns elements row by row, and calls body(row, column) for each of this rank's.
template <typename Body>
void for_my_2d(uint64_t rows, uint64_t columns, const Body& body) {
  for (const uint64_t i : my_1d(rows * columns)) body(i / columns, i % columns);
}

}  // namespace unet::splitc
