// frame_queue.h - a host's frame buffers: free, queued for the link, or waiting for address resolution; used by Host.
//
// All buffers are allocated at the start. A queued buffer becomes free when pop() has copied it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "unet/base/bytes.h"

namespace unet::ip {

class FrameQueue {
 public:
  FrameQueue(uint32_t buffers, uint32_t frame_max)
      : frame_max_(frame_max), memory_(new std::byte[size_t{buffers} * frame_max]), lengths_(buffers), queued_(buffers) {
    free_.reserve(buffers);
    for (uint32_t i = buffers; i-- > 0;) free_.push_back(i);
  }

  uint32_t frame_max() const noexcept { return frame_max_; }
  size_t available() const noexcept { return free_.size(); }
  bool empty() const noexcept { return count_ == 0; }

  std::optional<uint32_t> take() noexcept {
    if (free_.empty()) return std::nullopt;
    const uint32_t buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  void release(uint32_t buffer) noexcept { free_.push_back(buffer); }
  std::byte* frame(uint32_t buffer) noexcept { return memory_.get() + size_t{buffer} * frame_max_; }
  void set_length(uint32_t buffer, uint32_t length) noexcept { lengths_[buffer] = length; }

  void push(uint32_t buffer) noexcept { queued_[(first_ + count_++) % queued_.size()] = buffer; }
  // Copies the oldest queued frame to `room`; returns its length, 0 if there is none.
  uint32_t pop(std::byte* room) noexcept {
    if (count_ == 0) return 0;
    const uint32_t buffer = queued_[first_];
    first_ = static_cast<uint32_t>((first_ + 1) % queued_.size());
    --count_;
    std::memcpy(room, frame(buffer), lengths_[buffer]);
    release(buffer);
    return lengths_[buffer];
  }

  // Buffers of unresolved neighbours: at most half of all.
  bool begin_wait() noexcept {
    if (waiting_ >= lengths_.size() / 2) return false;
    ++waiting_;
    return true;
  }
  void end_wait() noexcept { --waiting_; }

 private:
  const uint32_t frame_max_;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<uint32_t> lengths_;  // by buffer: of the whole frame
  std::vector<uint32_t> free_;
  std::vector<uint32_t> queued_;   // ring
  uint32_t first_ = 0, count_ = 0, waiting_ = 0;
};

}  // namespace unet::ip
