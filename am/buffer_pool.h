// buffer_pool.h - memory for packets that wait for an acknowledgement; used by the links of one endpoint.
//
// Blocks of a few sizes are cut from slabs; each size has a list of free blocks. A packet needs no allocation once traffic has begun. The
// flows' windows bound the number of blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace unet::am {

class BufferPool {
 public:
  static constexpr std::array<uint32_t, 3> kSizes{256, 4 * 1024 + 256, 16 * 1024 + 256};  // bytes

  // Takes a buffer of `bytes`, at most the greatest size. The pool owns its memory.
  std::byte* take(uint32_t bytes) {
    const size_t of = size_class(bytes);
    if (free_[of].empty()) grow(of);
    std::byte* const buffer = free_[of].back();
    free_[of].pop_back();
    ++taken_;
    return buffer;
  }
  // Gives a buffer back. `bytes` is the size passed to take().
  void give(std::byte* buffer, uint32_t bytes) noexcept {
    free_[size_class(bytes)].push_back(buffer);  // does not allocate: grow() has reserved room for every block
    --taken_;
  }
  uint64_t taken() const noexcept { return taken_; }

 private:
  static constexpr uint32_t kSlabBuffers = 16;

  static size_t size_class(uint32_t bytes) noexcept {
    size_t of = 0;
    while (bytes > kSizes[of]) ++of;
    return of;
  }
  void grow(size_t of) {
    slabs_.push_back(std::make_unique<std::byte[]>(size_t{kSizes[of]} * kSlabBuffers));
    made_[of] += kSlabBuffers;
    free_[of].reserve(made_[of]);
    for (uint32_t i = 0; i < kSlabBuffers; ++i) free_[of].push_back(slabs_.back().get() + size_t{kSizes[of]} * i);
  }

  std::array<std::vector<std::byte*>, kSizes.size()> free_;
  std::array<size_t, kSizes.size()> made_{};
  std::vector<std::unique_ptr<std::byte[]>> slabs_;
  uint64_t taken_ = 0;
};

}  // namespace unet::am
