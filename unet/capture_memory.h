// capture_memory.h - a ring of captured frames, from the engine to a process or thread that stores them; used by ni/engine and
// drivers/capture (writers), and by drivers/capture and unetctl (readers).
//
//   page 0: CaptureHeader      then a ring of bytes: records of a multiple of kCaptureUnit bytes, which wrap around its end
//
// The writer trusts nothing in this memory except the reader's position, which it checks. Neither side waits: a frame without room is
// dropped from the capture and counted.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

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

constexpr uint64_t capture_record_size(uint32_t captured) noexcept {
  return sizeof(CaptureRecord) + (uint64_t{captured} + kCaptureUnit - 1) / kCaptureUnit * kCaptureUnit;
}

// What the writer has done. Private to it, because the reader can write all of the memory. A copy of an earlier state takes back what came
// after it and was not published.
struct CapturePositions {
  uint64_t written = 0, read = 0, frames = 0, dropped = 0;
};

// A view of the memory. `bytes` of the ring are a power of two.
class CaptureRing {
 public:
  CaptureRing(CaptureHeader& header, std::byte* ring, uint64_t bytes) noexcept : header_(&header), ring_(ring), bytes_(bytes) {}
  CaptureRing(std::byte* memory, uint64_t bytes) noexcept
      : CaptureRing(*reinterpret_cast<CaptureHeader*>(memory), memory + kCapturePage, bytes) {}
  CaptureHeader& header() const noexcept { return *header_; }

  // ---- the writer
  // Copies record.captured bytes of the frame, which consists of these pieces, or counts the frame as dropped.
  void put(CapturePositions& at, const CaptureRecord& record, const std::array<Bytes, 2>& pieces,
           std::span<const Bytes> further = {}) const noexcept {
    ++at.frames;
    const uint64_t size = capture_record_size(record.captured);
    if (!has_room(at, size)) {
      ++at.dropped;
      return;
    }
    copy_in(at.written, &record, sizeof record);
    uint64_t copied = 0;
    const auto copy = [&](Bytes piece) {
      const uint64_t length = std::min<uint64_t>(piece.size(), record.captured - copied);
      copy_in(at.written + sizeof record + copied, piece.data(), length);
      copied += length;
    };
    for (const Bytes piece : pieces) copy(piece);
    for (const Bytes piece : further) copy(piece);
    at.written += size;
  }
  bool has_room(CapturePositions& at, uint64_t size) const noexcept {
    if (at.written + size - at.read <= bytes_) return true;
    // Ignores impossible positions of the reader: beyond what was written, or backwards.
    const uint64_t read = header_->read.load(std::memory_order_acquire);  // pairs with the reader: what it read may be overwritten
    if (read >= at.read && read <= at.written && read % kCaptureUnit == 0) at.read = read;
    return at.written + size - at.read <= bytes_;
  }
  // Shows the reader what was put.
  void publish(const CapturePositions& at, uint64_t missed = 0) const noexcept {
    header_->frames.store(at.frames + missed, std::memory_order_relaxed);
    header_->dropped.store(at.dropped + missed, std::memory_order_relaxed);
    header_->written.store(at.written, std::memory_order_release);  // after the records
  }

  // ---- the reader
  void copy_out(uint64_t position, void* to, uint64_t length) const noexcept {
    if (length == 0) return;
    const uint64_t at = position & (bytes_ - 1), first = std::min(length, bytes_ - at);
    std::memcpy(to, ring_ + at, first);
    if (length != first) std::memcpy(static_cast<std::byte*>(to) + first, ring_, length - first);
  }

 private:
  void copy_in(uint64_t position, const void* from, uint64_t length) const noexcept {
    if (length == 0) return;
    const uint64_t at = position & (bytes_ - 1), first = std::min(length, bytes_ - at);
    std::memcpy(ring_ + at, from, first);
    if (length != first) std::memcpy(ring_, static_cast<const std::byte*>(from) + first, length - first);
  }

  CaptureHeader* header_;
  std::byte* ring_;
  uint64_t bytes_;
};

// The reading end. It copies a record before it checks it.
class CaptureReader {
 public:
  explicit CaptureReader(const CaptureRing& ring) : ring_(ring), frame_(65536) {}

  // Takes the next record and its frame. False: there is none, or the ring is broken().
  bool next() noexcept {
    if (position_ == written_) written_ = ring_.header().written.load(std::memory_order_acquire);  // before the records
    if (position_ == written_ || broken_) return false;
    ring_.copy_out(position_, &record_, sizeof record_);
    const uint64_t size = capture_record_size(record_.captured);
    broken_ = size > written_ - position_ || record_.captured > frame_.size();
    if (broken_) return false;
    ring_.copy_out(position_ + sizeof record_, frame_.data(), record_.captured);
    position_ += size;
    ring_.header().read.store(position_, std::memory_order_release);  // after the copy
    return true;
  }
  const CaptureRecord& record() const noexcept { return record_; }
  Bytes frame() const noexcept { return {frame_.data(), record_.captured}; }
  bool broken() const noexcept { return broken_; }
  const CaptureHeader& header() const noexcept { return ring_.header(); }

 private:
  CaptureRing ring_;
  CaptureRecord record_{};
  std::vector<std::byte> frame_;
  uint64_t position_ = 0, written_ = 0;
  bool broken_ = false;
};

}  // namespace unet
