// data_ring.h - the sender's allocator for messages longer than a slot: a ring of bytes, freed in order by slot credits.
//
// All of its state is private to the sender; the other side sees only offsets. A message is always contiguous: one that does not fit before
// the end starts again at the beginning.
#pragma once

#include <cstdint>
#include <vector>

#include "unet/layout.h"

namespace unet {

class DataRing {
 public:
  DataRing() = default;
  // Manages `bytes` of memory for at most `depth` messages at a time. `depth` is the depth of the queue; its credits free them.
  DataRing(uint64_t bytes, uint32_t depth) : bytes_(bytes), mask_(depth - 1), ends_(depth) {}

  static constexpr uint64_t kNone = ~uint64_t{0};

  // Returns the offset for a message of `length` bytes, or kNone. Nothing is taken until commit(), so a second reserve() replaces the
  // first.
  uint64_t reserve(uint32_t length) noexcept {
    const uint64_t size = round_up(length, kCacheLine);
    if (empty()) {
      // Everything was read: begin again where the cache lines are still warm.
      if (size > bytes_) return kNone;
      next_ = 0;
      return 0;
    }
    const uint64_t free = bytes_ - used_;
    uint64_t skip = 0;
    if (next_ + size > bytes_) skip = bytes_ - next_;
    if (skip + size > free) return kNone;
    return skip == 0 ? next_ : 0;
  }

  // Takes `length` bytes at the `offset` of the last reserve(), at most the length requested there, for the message in slot `position`.
  // Positions never wrap here (SlotWriter::written()), because billions of small messages may pass before credits are read.
  void commit(uint64_t offset, uint32_t length, uint64_t position) noexcept {
    const uint64_t size = round_up(length, kCacheLine);
    if (offset != next_ && !empty()) {
      // The gap before the end is freed with the previous message.
      const uint64_t skip = bytes_ - next_;
      ends_[(tail_ - 1) & mask_].size += skip;
      used_ += skip;
    }
    used_ += size;
    next_ = offset + size == bytes_ ? 0 : offset + size;
    ends_[tail_++ & mask_] = End{position, size};
  }

  // Frees the bytes of slots before `consumed`.
  void credit(uint64_t consumed) noexcept {
    while (head_ != tail_) {
      const End& oldest = ends_[head_ & mask_];
      if (oldest.position >= consumed) break;
      used_ -= oldest.size;
      ++head_;
    }
  }

  bool empty() const noexcept { return head_ == tail_; }
  uint64_t bytes() const noexcept { return bytes_; }

 private:
  struct End {
    uint64_t position;
    uint64_t size;
  };
  uint64_t bytes_ = 0;
  uint64_t used_ = 0;
  uint64_t next_ = 0;
  uint32_t mask_ = 0;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
  std::vector<End> ends_;
};

}  // namespace unet
