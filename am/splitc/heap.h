// heap.h - the allocator of spread memory: the same machine at every rank, fed with the same calls; used by Node.
#pragma once

#include <cstdint>
#include <map>

namespace unet::splitc {

// First fit among the free pieces, in order of their offsets. Its tables lie outside the memory that it divides, so no peer can damage
// them.
class SpreadHeap {
 public:
  static constexpr uint64_t kAlignment = 64;

  // Divides `bytes` from offset `begin` on, which must be aligned.
  SpreadHeap(uint64_t begin, uint64_t bytes);

  // Allocates `bytes` (0 counts as 1), aligned to a cache line; returns the offset, or 0 if no piece is large enough.
  uint64_t allocate(uint64_t bytes);
  // Returns false if nothing is allocated at `offset`.
  bool free(uint64_t offset);

  uint64_t in_use() const noexcept { return in_use_; }
  uint64_t largest_free() const noexcept;

 private:
  std::map<uint64_t, uint64_t> free_;  // offset: bytes. Neighbouring pieces are merged.
  std::map<uint64_t, uint64_t> used_;
  uint64_t in_use_ = 0;
};

}  // namespace unet::splitc
