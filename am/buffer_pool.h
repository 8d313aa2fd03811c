// buffer_pool.h - memory for packets that wait to be acknowledged; used by the links of one endpoint.
//
// Blocks of a few sizes, cut from slabs, each size with a list of free ones: no allocation per packet once traffic has begun. How many
// there ever are is bounded by the flows' windows.
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

  // `bytes` <= the greatest size. The buffer stays the pool's.
  std::byte* take(uint32_t bytes) {
    const size_t of = size_class(bytes);
    if (free_[of].empty()) grow(of);
    std::byte* const buffer = free_[of].back();
    free_[of].pop_back();
    ++taken_;
    return buffer;
  }
  // `bytes` as it was taken with.
  void give(std::byte* buffer, uint32_t bytes) noexcept {
    free_[size_class(bytes)].push_back(buffer);  // never more than grow() has made room for
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
