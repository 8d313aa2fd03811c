// nowhere.h - a wire without a peer: sent frames vanish, and none arrive. It serves a network interface with applications that talk only to
// each other, by IP addresses that need a wire to belong to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ni/driver.h"

namespace unet::drivers {

class Nowhere final : public Driver {
 public:
  explicit Nowhere(uint32_t mtu = 1500);
  ~Nowhere() override;

  const DriverCapabilities& capabilities() const noexcept override { return capabilities_; }
  uint32_t receive(std::span<ReceivedFrame>, Nanoseconds) noexcept override { return 0; }
  void release(std::span<const ReceivedFrame>) noexcept override {}
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds) noexcept override;
  void discard(std::span<const TransmitFrame> frames) noexcept override;
  int wait_descriptor() const noexcept override { return never_; }
  std::vector<DriverCounter> counters() const override { return {{"tx_frames", sent_}}; }
  std::string description() const override;

 private:
  static constexpr uint32_t kFrames = 128;

  DriverCapabilities capabilities_;
  std::unique_ptr<std::byte[]> memory_;
  std::vector<std::byte*> free_;
  uint64_t sent_ = 0;
  int never_;  // a descriptor that never becomes readable
};

}  // namespace unet::drivers
