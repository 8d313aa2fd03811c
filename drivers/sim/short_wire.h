// short_wire.h - a wire that takes only so many frames, for tests of what wrappers do with the others; used by drivers' tests.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "unet/driver.h"

namespace unet::drivers {

class ShortWire final : public Driver {
 public:
  explicit ShortWire(std::unique_ptr<Driver> wire) : wire_(std::move(wire)) {}
  uint32_t takes = ~uint32_t{0};  // frames that it still takes

  const DriverCapabilities& capabilities() const noexcept override { return wire_->capabilities(); }
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override { return wire_->receive(frames, now); }
  void release(std::span<const ReceivedFrame> frames) noexcept override { wire_->release(frames); }
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override { return wire_->allocate(frames); }
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override {
    const uint32_t taken = wire_->transmit(frames.first(std::min<size_t>(frames.size(), takes)), now);
    takes -= taken;
    return taken;
  }
  void discard(std::span<const TransmitFrame> frames) noexcept override { wire_->discard(frames); }
  void poll(Nanoseconds now) noexcept override { wire_->poll(now); }
  std::vector<DriverCounter> counters() const override { return wire_->counters(); }
  std::string description() const override { return wire_->description(); }

 private:
  std::unique_ptr<Driver> wire_;
};

}  // namespace unet::drivers
