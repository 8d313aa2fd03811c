// wrapper.h - a driver around another driver that forwards every call; subclasses override what they change.
//
// A subclass that supports several queues overrides take_queues(). apps/wrapper_spec.cc lists those subclasses, and refuses all others over
// a wire with several queues.
#pragma once

#include <memory>
#include <utility>

#include "ni/driver.h"

namespace unet::drivers {

class Wrapper : public Driver {
 public:
  const DriverCapabilities& capabilities() const noexcept override { return capabilities_; }
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override { return wire_->receive(frames, now); }
  void release(std::span<const ReceivedFrame> frames) noexcept override { wire_->release(frames); }
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override { return wire_->allocate(frames); }
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override { return wire_->transmit(frames, now); }
  void discard(std::span<const TransmitFrame> frames) noexcept override { wire_->discard(frames); }
  void poll(Nanoseconds now) noexcept override { wire_->poll(now); }
  Nanoseconds next_event() const noexcept override { return wire_->next_event(); }
  int wait_descriptor() const noexcept override { return wire_->wait_descriptor(); }
  bool register_memory(std::span<std::byte> memory) noexcept override { return wire_->register_memory(memory); }
  void forget_memory(std::span<std::byte> memory) noexcept override { wire_->forget_memory(memory); }
  uint32_t queues() const noexcept override { return wire_->queues(); }
  std::vector<DriverCounter> counters() const override { return wire_->counters(); }
  std::shared_ptr<WireState> state() const override { return wire_->state(); }
  std::string description() const override { return wire_->description(); }

 protected:
  explicit Wrapper(std::unique_ptr<Driver> wire) : wire_(std::move(wire)), capabilities_(wire_->capabilities()) {
    capabilities_.external_pieces = 1;  // wrappers read external payload in one piece
  }

  std::unique_ptr<Driver> wire_;
  DriverCapabilities capabilities_;  // the wire's, with the wrapper's changes
};

}  // namespace unet::drivers
