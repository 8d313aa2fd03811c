// shared_copy.h - a long copy that two processes of one host do together: one from the front, the other from the back; used by PeerMemory.
//
// The process that gets the bytes, the reader, begins the copy and reads chunks from the front. The other one, the helper, writes chunks
// from the back when it polls. One word counts the chunks that each side has claimed, so no chunk has two owners. A helper that does not
// poll claims nothing. The copy ends when the helper has written the chunks that it has claimed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace unet::fabric {

// A side can write anything here. So each side passes its own counts, and no call loops without a bound.
class alignas(64) SharedCopy {
 public:
  static constexpr uint32_t kSlots = 64;  // copies of one reader at a time
  static constexpr uint64_t kLeast = 64 * 1024, kMost = uint64_t{1} << 32;  // bytes of a copy

  // Both sides cut a copy of so many bytes into the same chunks.
  static constexpr uint64_t chunk_bytes(uint64_t length) noexcept {
    return std::clamp((length / 8 + 4095) & ~uint64_t{4095}, kChunkMin, kChunkMax);
  }
  static constexpr uint32_t chunks_of(uint64_t length) noexcept {
    return static_cast<uint32_t>((length + chunk_bytes(length) - 1) / chunk_bytes(length));
  }

  // ---- reader

  // `number` names the copy.
  void begin(uint32_t number) noexcept {
    finished_.store(0, std::memory_order_relaxed);
    claims_.store(uint64_t{number} << 32, std::memory_order_release);
  }
  bool is_begun(uint32_t number) const noexcept { return claims_.load(std::memory_order_acquire) >> 32 == number; }
  // Claims chunk `front`. False: all are claimed.
  bool claim_front(uint32_t number, uint32_t front, uint32_t chunks) noexcept {
    const auto is_free = [&](uint64_t claims) {
      return claims >> 32 == number && (claims & kCount) == front && front + (claims >> 16 & kCount) < chunks;
    };
    return is_free(claims_.load(std::memory_order_acquire)) && is_free(claims_.fetch_add(1, std::memory_order_acq_rel));
  }
  // The helper claims no more.
  void close() noexcept { claims_.fetch_or(kCount, std::memory_order_acq_rel); }
  // Whether the helper has written the chunks that it has claimed, or cannot. `written`: how many it has.
  bool is_written(uint32_t& written) const noexcept {
    const uint32_t finished = finished_.load(std::memory_order_acquire);
    written = finished & kCount;
    return (finished & kFailed) != 0 || written >= (claims_.load(std::memory_order_acquire) >> 16 & kCount);
  }

  // ---- helper

  // Claims the chunk before the last `back` ones.
  bool claim_back(uint32_t number, uint32_t back, uint32_t chunks) noexcept {
    uint64_t claims = claims_.load(std::memory_order_acquire);
    for (int i = 0; i < 4; ++i) {  // a reader changes it once per chunk
      if (claims >> 32 != number || (claims >> 16 & kCount) != back || (claims & kCount) + back >= chunks) return false;
      if (claims_.compare_exchange_strong(claims, claims + (1 << 16), std::memory_order_acq_rel)) return true;
    }
    return false;
  }
  void set_written(uint32_t chunks, bool failed) noexcept {
    finished_.store(chunks | (failed ? kFailed : 0), std::memory_order_release);
  }

 private:
  static constexpr uint64_t kChunkMin = 32 * 1024, kChunkMax = 256 * 1024;
  static constexpr uint32_t kCount = 0xFFFF, kFailed = 1 << 16;

  std::atomic<uint64_t> claims_{0};    // number, chunks from the back, chunks from the front
  std::atomic<uint32_t> finished_{0};  // kFailed, chunks from the back that are written; by the helper
};
static_assert(sizeof(SharedCopy) == 64 && std::atomic<uint64_t>::is_always_lock_free);
static_assert(SharedCopy::chunks_of(SharedCopy::kMost) < 0x8000);

}  // namespace unet::fabric
