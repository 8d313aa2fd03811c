// heap.h - which parts of spread memory are in use: the same machine at every rank, which sees the same calls; used by Node.
#pragma once

#include <cstdint>
#include <map>

namespace unet::splitc {

// First fit among the free pieces, in order of their offsets. Nothing of it lies in the memory that it divides, so no peer can harm it.
class SpreadHeap {
 public:
  static constexpr uint64_t kAlignment = 64;

  // Divides `bytes` from offset `begin` on, which is aligned.
  SpreadHeap(uint64_t begin, uint64_t bytes);

  // The offset of `bytes` (0 counts as 1), aligned to a cache line; 0 if there is no such piece.
  uint64_t allocate(uint64_t bytes);
  // False if nothing was allocated there.
  bool free(uint64_t offset);

  uint64_t in_use() const noexcept { return in_use_; }
  uint64_t largest_free() const noexcept;

 private:
  std::map<uint64_t, uint64_t> free_;  // offset: bytes. No two touch each other.
  std::map<uint64_t, uint64_t> used_;
  uint64_t in_use_ = 0;
};

}  // namespace unet::splitc
