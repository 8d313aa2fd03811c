// capture_ring.h - a ring of frame copies between the engine and the thread that writes them; used by CaptureFile.
//
//   read_position          published            staged
//   |  for the writer ...  |  not yet visible   |
//
// One thread stages and publishes, another reads. Staged records can be taken back, because a port says only afterwards how many frames it
// took. Neither thread waits: a frame without room is dropped.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <span>

#include "drivers/capture/pcapng.h"

namespace unet::drivers {

class CaptureRing {
 public:
  struct Record {
    Nanoseconds time;
    uint32_t length;    // length of the frame on the wire
    uint32_t captured;  // bytes that follow the record
    pcapng::Direction direction;
    uint32_t size;      // bytes of the record and its frame, a multiple of kUnit
  };
  static constexpr size_t kUnit = 8;

  // `bytes` is a power of two.
  explicit CaptureRing(size_t bytes) : bytes_(bytes), memory_(new std::byte[bytes]) {}

  // ---- the engine's thread

  // Position of the next record, for publish() and take_back().
  uint64_t staged() const noexcept { return staged_; }

  // Returns room for a record of `captured` bytes, or nullptr. The caller fills it and commits it with stage().
  std::byte* room(uint32_t captured) noexcept {
    const size_t size = size_of(captured);
    uint64_t start = staged_;
    const size_t left = bytes_ - (start & (bytes_ - 1));
    if (left < size) start += left;  // a record is contiguous: start again at the beginning of the memory
    if (start + size - read_known_ > bytes_) {
      read_known_ = read_.load(std::memory_order_acquire);  // pairs with consumed(): bytes that were read may be overwritten
      if (start + size - read_known_ > bytes_) return nullptr;
    }
    if (left < size && left >= sizeof(Record)) {
      const Record skip{.time = 0, .length = 0, .captured = 0, .direction = {}, .size = 0};
      std::memcpy(at(staged_), &skip, sizeof skip);
    }
    start_ = start;
    return at(start) + sizeof(Record);
  }
  void stage(Record record) noexcept {
    record.size = static_cast<uint32_t>(size_of(record.captured));
    std::memcpy(at(start_), &record, sizeof record);
    staged_ = start_ + record.size;
  }
  void take_back(uint64_t position) noexcept { staged_ = position; }
  void publish() noexcept { published_.store(staged_, std::memory_order_release); }  // after the records
  // Whether at least half of the ring waits for the writer.
  bool filling() noexcept {
    if (staged_ - read_known_ <= bytes_ / 2) return false;
    read_known_ = read_.load(std::memory_order_acquire);  // as in room()
    return staged_ - read_known_ > bytes_ / 2;
  }

  // ---- the writer's thread

  // Gives the oldest record, or returns false. The record stays valid until consumed().
  bool next(Record& record, std::span<const std::byte>& bytes) noexcept {
    const uint64_t end = published_.load(std::memory_order_acquire);
    while (position_ != end) {
      const size_t left = bytes_ - (position_ & (bytes_ - 1));
      if (left >= sizeof(Record)) {
        std::memcpy(&record, at(position_), sizeof record);
        if (record.size != 0) {
          bytes = {at(position_) + sizeof record, record.captured};
          return true;
        }
      }
      position_ += left;
    }
    return false;
  }
  void consumed(const Record& record) noexcept {
    position_ += record.size;
    read_.store(position_, std::memory_order_release);  // after the copy out
  }

 private:
  static size_t size_of(uint32_t captured) noexcept { return sizeof(Record) + (captured + kUnit - 1) / kUnit * kUnit; }
  std::byte* at(uint64_t position) noexcept { return memory_.get() + (position & (bytes_ - 1)); }

  const size_t bytes_;
  std::unique_ptr<std::byte[]> memory_;
  uint64_t staged_ = 0, start_ = 0, read_known_ = 0;  // used by the engine only
  alignas(64) std::atomic<uint64_t> published_{0};
  alignas(64) std::atomic<uint64_t> read_{0};
  uint64_t position_ = 0;                             // used by the writer only
};
static_assert(sizeof(CaptureRing::Record) == 24);

}  // namespace unet::drivers
