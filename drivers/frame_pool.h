// frame_pool.h - a fixed number of frame buffers, used without allocation by ports over the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ni/driver.h"

namespace unet::drivers {

// One thread uses it. A buffer belongs to its taker until it is given back.
class FramePool {
 public:
  FramePool(uint32_t frames, uint32_t room) : FramePool(new std::byte[size_t{room} * frames], frames, room) { own_.reset(free_.back()); }
  // The buffers lie in `memory`, which the caller keeps.
  FramePool(std::byte* memory, uint32_t frames, uint32_t room) {
    free_.reserve(frames);
    for (uint32_t i = frames; i-- > 0;) free_.push_back(memory + size_t{room} * i);
  }

  std::byte* take() noexcept {
    if (free_.empty()) return nullptr;
    std::byte* const place = free_.back();
    free_.pop_back();
    return place;
  }
  void give_back(std::byte* place) noexcept { free_.push_back(place); }
  // Implement Driver::allocate(), release() and discard(): a frame's handle is its buffer.
  uint32_t take(std::span<TransmitFrame> frames) noexcept {
    uint32_t count = 0;
    for (; count < frames.size() && !free_.empty(); ++count) frames[count].handle = frames[count].data = take();
    return count;
  }
  template <typename Frame>
  void give_back(std::span<Frame> frames) noexcept {
    for (const Frame& frame : frames) give_back(static_cast<std::byte*>(frame.handle));
  }
  size_t available() const noexcept { return free_.size(); }

 private:
  std::unique_ptr<std::byte[]> own_;  // pages are touched when they are first used
  std::vector<std::byte*> free_;      // last in, first out: the buffer is still in the cache
};

}  // namespace unet::drivers
