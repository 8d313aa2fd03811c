// frame_port.h - base of the pcap ports: frames in two pools, one copy each way; used by PcapLive and PcapFiles.
#pragma once

#include <algorithm>
#include <cstring>

#include "drivers/frame_pool.h"
#include "ni/driver.h"

namespace unet::drivers {

class FramePort : public Driver {
 public:
  const DriverCapabilities& capabilities() const noexcept final { return capabilities_; }

  void release(std::span<const ReceivedFrame> frames) noexcept final { receive_pool_.give_back(frames); }
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept final { return transmit_pool_.take(frames); }
  void discard(std::span<const TransmitFrame> frames) noexcept final { transmit_pool_.give_back(frames); }

 protected:
  static constexpr uint32_t kFrames = 2048;  // of each pool: more than an engine holds, even with wrappers that delay frames

  explicit FramePort(const DriverCapabilities& capabilities)
      : capabilities_(capabilities),
        room_((capabilities.mtu + kEthernetBytes + 63) / 64 * 64),
        receive_pool_(kFrames, room_),
        transmit_pool_(kFrames, room_) {}

  // Copies an arrived frame that fits the MTU. receive() must have reserved a buffer.
  ReceivedFrame keep(const void* bytes, uint32_t length) noexcept {
    std::byte* const place = receive_pool_.take();
    std::memcpy(place, bytes, length);
    return {.data = place, .length = length, .handle = place};
  }
  uint32_t places(size_t wanted) const noexcept { return static_cast<uint32_t>(std::min(wanted, receive_pool_.available())); }
  bool fits(uint32_t length) const noexcept { return length <= capabilities_.mtu + kEthernetBytes; }

 private:
  DriverCapabilities capabilities_;
  uint32_t room_;
  FramePool receive_pool_;
  FramePool transmit_pool_;
};

}  // namespace unet::drivers
