// short_wire.h - a wire that takes a limited number of frames, to test how wrappers treat the others; used by drivers' tests.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "drivers/wrapper.h"

namespace unet::drivers {

class ShortWire final : public Wrapper {
 public:
  explicit ShortWire(std::unique_ptr<Driver> wire) : Wrapper(std::move(wire)) {}
  uint32_t takes = ~uint32_t{0};  // frames that it still takes

  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override {
    const uint32_t taken = wire_->transmit(frames.first(std::min<size_t>(frames.size(), takes)), now);
    takes -= taken;
    return taken;
  }
};

}  // namespace unet::drivers
