// chunk_pool.h - the memory of all buffers: chunks of one size, taken when data comes and given back when it is gone. Made by the owner
// of connections before any of them, for one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "unet/base/bytes.h"
#include "unet/base/check.h"

namespace unet::tcp {

using ChunkIndex = uint32_t;
constexpr ChunkIndex kNoChunk = ~ChunkIndex{0};

class ChunkPool {
 public:
  static constexpr uint32_t kChunkMin = 512;

  // `chunk_size` is a power of two: chunks of a stream stand at multiples of it, and a stream's places wrap at 2^32.
  ChunkPool(uint32_t chunk_size, uint32_t count)
      : size_(chunk_size), free_(count), reserve_(count < 8 ? 1 : count / 4),
        memory_(new std::byte[size_t{chunk_size} * count]), links_(count) {
    UNET_CHECK(chunk_size >= kChunkMin && std::has_single_bit(chunk_size) && count != kNoChunk);
    for (uint32_t i = 0; i < count; ++i) links_[i].next = i + 1 < count ? i + 1 : kNoChunk;
    first_ = count == 0 ? kNoChunk : 0;
  }

  uint32_t chunk_size() const noexcept { return size_; }
  uint32_t available() const noexcept { return free_; }

  // What is to be sent leaves a quarter to what comes: two sides that had filled all they have with what neither can take would wait
  // for ever.
  ChunkIndex take_to_send() noexcept { return may_send() ? take() : kNoChunk; }
  bool may_send() const noexcept { return free_ > reserve_; }
  // What waits behind gaps leaves half of that to what comes in order, of this connection and of others.
  ChunkIndex take_behind_gap() noexcept { return free_ > reserve_ / 2 ? take() : kNoChunk; }
  ChunkIndex take() noexcept {
    const ChunkIndex chunk = first_;
    if (chunk == kNoChunk) return kNoChunk;
    first_ = links_[chunk].next;
    links_[chunk] = {};
    --free_;
    return chunk;
  }
  void give_back(ChunkIndex chunk) noexcept {
    links_[chunk].next = first_;
    first_ = chunk;
    ++free_;
  }

  std::byte* data(ChunkIndex chunk) noexcept { return memory_.get() + size_t{chunk} * size_; }
  const std::byte* data(ChunkIndex chunk) const noexcept { return memory_.get() + size_t{chunk} * size_; }

  // Two words per chunk for who has it: the chunk behind it in a list, and where it stands in a stream.
  struct Link {
    ChunkIndex next = kNoChunk;
    uint32_t position = 0;
  };
  Link& link(ChunkIndex chunk) noexcept { return links_[chunk]; }
  const Link& link(ChunkIndex chunk) const noexcept { return links_[chunk]; }

 private:
  uint32_t size_;
  uint32_t free_;
  uint32_t reserve_;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<Link> links_;
  ChunkIndex first_ = kNoChunk;
};

}  // namespace unet::tcp
