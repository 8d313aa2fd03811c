// nowhere.cc - hands out buffers, and drops what is sent.
#include "drivers/nowhere/nowhere.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "unet/base/check.h"

namespace unet::drivers {

Nowhere::Nowhere(uint32_t mtu)
    : capabilities_{.address = {2, 0, 0, 0, 0, 1}, .mtu = mtu, .alone = true},
      memory_(new std::byte[size_t{mtu + kEthernetBytes} * kFrames]),
      never_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  UNET_CHECK(never_ >= 0);
  free_.reserve(kFrames);
  for (uint32_t i = 0; i < kFrames; ++i) free_.push_back(memory_.get() + size_t{mtu + kEthernetBytes} * i);
}

Nowhere::~Nowhere() { ::close(never_); }

uint32_t Nowhere::allocate(std::span<TransmitFrame> frames) noexcept {
  uint32_t count = 0;
  for (; count < frames.size() && !free_.empty(); ++count) {
    frames[count] = {.data = free_.back()};
    free_.pop_back();
  }
  return count;
}

uint32_t Nowhere::transmit(std::span<TransmitFrame> frames, Nanoseconds) noexcept {
  discard(frames);
  sent_ += frames.size();
  return static_cast<uint32_t>(frames.size());
}

void Nowhere::discard(std::span<const TransmitFrame> frames) noexcept {
  for (const TransmitFrame& frame : frames) free_.push_back(frame.data);
}

std::string Nowhere::description() const { return "nowhere mtu " + std::to_string(capabilities_.mtu); }

}  // namespace unet::drivers
