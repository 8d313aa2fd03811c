// capture_memory.h - copies of frames on their way from the engine to a process that writes them to a file: the layout of the memory
// both have mapped; used by ni/engine (writer) and unetctl (reader).
//
//   page 0: CaptureHeader      then a ring of bytes: records of a multiple of kCaptureUnit bytes, which wrap around its end
//
// The engine believes nothing that stands in this memory but how far the reader has read, and of that only what is possible. Nobody
// waits: a frame that has no room is dropped from the capture, and counted.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "unet/base/bytes.h"
#include "unet/limits.h"

namespace unet {

constexpr uint32_t kCaptureUnit = 8;
constexpr uint32_t kCapturePage = 4096;           // of the header
constexpr uint32_t kCaptureBytesMin = 64 * 1024;  // of the ring, a power of two
constexpr uint32_t kCaptureBytesMax = 64 << 20;
constexpr uint32_t kCapturesMax = 16;             // of an NI at a time

struct CaptureHeader {
  alignas(kCacheLine) std::atomic<uint64_t> written;  // bytes, ever; after the records
  std::atomic<uint64_t> frames;                       // wanted, with those dropped
  std::atomic<uint64_t> dropped;                      // had no room
  std::atomic<uint32_t> ended;                        // 1: the engine writes no more
  alignas(kCacheLine) std::atomic<uint64_t> read;     // bytes, ever; the reader's
};
static_assert(sizeof(CaptureHeader) <= kCapturePage && std::atomic<uint64_t>::is_always_lock_free);

struct CaptureRecord {
  uint64_t time;      // of the engine's clock
  uint32_t length;    // of the frame on the wire
  uint32_t captured;  // bytes that follow, padded to kCaptureUnit
  uint8_t port;
  uint8_t outbound;   // 1: sent, 0: received
  uint8_t unused[6];
};
static_assert(sizeof(CaptureRecord) == 24);

// A ring of bytes, copied into and out of where it may wrap. `bytes` is a power of two.
inline void capture_copy_in(std::byte* ring, uint64_t bytes, uint64_t position, const void* from, uint64_t length) noexcept {
  if (length == 0) return;
  const uint64_t at = position & (bytes - 1), first = std::min(length, bytes - at);
  std::memcpy(ring + at, from, first);
  if (length != first) std::memcpy(ring, static_cast<const std::byte*>(from) + first, length - first);
}
inline void capture_copy_out(const std::byte* ring, uint64_t bytes, uint64_t position, void* to, uint64_t length) noexcept {
  if (length == 0) return;
  const uint64_t at = position & (bytes - 1), first = std::min(length, bytes - at);
  std::memcpy(to, ring + at, first);
  if (length != first) std::memcpy(static_cast<std::byte*>(to) + first, ring, length - first);
}
constexpr uint64_t capture_record_size(uint32_t captured) noexcept {
  return sizeof(CaptureRecord) + (uint64_t{captured} + kCaptureUnit - 1) / kCaptureUnit * kCaptureUnit;
}

}  // namespace unet
