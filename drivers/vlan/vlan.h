// vlan.h - a wrapper that puts frames into a VLAN (IEEE 802.1Q), with one tag on each frame; made by apps/drivers.
//
//   engine:           to 6 | from 6 | type 2 | ...
//   wire:    to 6 | from 6 | 0x8100 | priority and VLAN | type 2 | ...
//
// Frames without this VLAN's tag are dropped and counted. A frame costs a move of 12 bytes; no byte of payload is copied.
#pragma once

#include <memory>

#include "drivers/wrapper.h"
#include "unet/base/result.h"

namespace unet::drivers {

constexpr uint16_t kVlanMax = 4094;

struct VlanOptions {
  uint16_t id = 0;        // 1 to kVlanMax
  uint8_t priority = 0;   // 0 to 7
};

class Vlan final : public Wrapper {
 public:
  Vlan(std::unique_ptr<Driver> wire, const VlanOptions& options);

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  std::vector<std::unique_ptr<Driver>> take_queues() override;
  // The wire's counters, and vlan_received, vlan_untagged, vlan_other.
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  bool take_tag_off(ReceivedFrame& frame) noexcept;

  const VlanOptions options_;
  uint64_t received_ = 0, untagged_ = 0, other_ = 0;
};

}  // namespace unet::drivers
