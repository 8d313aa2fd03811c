// vlan.h - a wrapper that carries frames in a VLAN (IEEE 802.1Q): one tag on every frame; made by apps/drivers.
//
//   engine:           to 6 | from 6 | type 2 | ...
//   wire:    to 6 | from 6 | 0x8100 | priority and VLAN | type 2 | ...
//
// Frames without this VLAN's tag are dropped and counted. A frame costs a move of 12 bytes; no byte of payload is copied.
#pragma once

#include <memory>

#include "unet/base/result.h"
#include "unet/driver.h"

namespace unet::drivers {

constexpr uint16_t kVlanMax = 4094;

struct VlanOptions {
  uint16_t id = 0;        // 1 to kVlanMax
  uint8_t priority = 0;   // 0 to 7
};

class Vlan final : public Driver {
 public:
  Vlan(std::unique_ptr<Driver> wire, const VlanOptions& options);

  const DriverCapabilities& capabilities() const noexcept override { return capabilities_; }
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  void release(std::span<const ReceivedFrame> frames) noexcept override { wire_->release(frames); }
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  void discard(std::span<const TransmitFrame> frames) noexcept override { wire_->discard(frames); }
  void poll(Nanoseconds now) noexcept override { wire_->poll(now); }
  Nanoseconds next_event() const noexcept override { return wire_->next_event(); }
  int wait_descriptor() const noexcept override { return wire_->wait_descriptor(); }
  bool register_memory(std::span<std::byte> memory) noexcept override { return wire_->register_memory(memory); }
  void forget_memory(std::span<std::byte> memory) noexcept override { wire_->forget_memory(memory); }
  // The wire's, and vlan_received, vlan_untagged, vlan_other.
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  bool take_tag_off(ReceivedFrame& frame) noexcept;

  std::unique_ptr<Driver> wire_;
  const VlanOptions options_;
  DriverCapabilities capabilities_;
  uint64_t received_ = 0, untagged_ = 0, other_ = 0;
};

}  // namespace unet::drivers
