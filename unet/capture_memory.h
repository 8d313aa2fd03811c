// capture_memory.h - the shared memory of a capture, from the engine to a process that stores the frames; used by ni/engine (writer) and
// unetctl (reader).
//
//   page 0: CaptureHeader      then a ring of bytes: records of a multiple of kCaptureUnit bytes, which wrap around its end
//
// The engine trusts nothing in this memory except the reader's position, which it checks. Neither side waits: a frame without room is
// dropped from the capture and counted.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "unet/base/bytes.h"
#include "unet/limits.h"

namespace unet {

constexpr uint32_t kCaptureUnit = 8;
constexpr uint32_t kCapturePage = 4096;           // size of the header
constexpr uint32_t kCaptureBytesMin = 64 * 1024;  // of the ring; its size is a power of two
constexpr uint32_t kCaptureBytesMax = 64 << 20;
constexpr uint32_t kCapturesMax = 16;             // captures of an NI at a time

struct CaptureHeader {
  alignas(kCacheLine) std::atomic<uint64_t> written;  // total bytes written; stored after the records
  std::atomic<uint64_t> frames;                       // frames that the filter wanted, including dropped ones
  std::atomic<uint64_t> dropped;                      // frames without room in the ring
  std::atomic<uint32_t> ended;                        // 1: the engine has stopped writing
  alignas(kCacheLine) std::atomic<uint64_t> read;     // total bytes read; the reader writes it
};
static_assert(sizeof(CaptureHeader) <= kCapturePage && std::atomic<uint64_t>::is_always_lock_free);

struct CaptureRecord {
  uint64_t time;      // in the engine's clock
  uint32_t length;    // length of the frame on the wire
  uint32_t captured;  // bytes that follow, padded to kCaptureUnit
  uint8_t port;
  uint8_t outbound;   // 1: sent, 0: received
  uint8_t unused[6];
};
static_assert(sizeof(CaptureRecord) == 24);

// Copy into and out of a ring of bytes that may wrap. `bytes` is a power of two.
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
