// capture.h - a wrapper that writes what passes a wire to a pcapng file, for tcpdump and Wireshark; made by apps/drivers.
//
// What it sees is what the engine receives and what the wire has taken. Compose it on the side of another wrapper that you
// want to see: "capture:file=a.pcapng / faulty:loss=1% / ..." has the frames that the engine sent, lost ones too.
// capture_file.h says what happens when the disk is slow or full. A frame costs a copy; without a wrapper, nothing.
#pragma once

#include <memory>

#include "drivers/capture/capture_file.h"

namespace unet::drivers {

class Capture final : public Driver {
 public:
  // Errors: as CaptureFile::start(). The wire is destroyed then.
  static Result<std::unique_ptr<Driver>> wrap(std::unique_ptr<Driver> wire, const CaptureOptions& options);

  const DriverCapabilities& capabilities() const noexcept override { return wire_->capabilities(); }
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  void release(std::span<const ReceivedFrame> frames) noexcept override { wire_->release(frames); }
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override { return wire_->allocate(frames); }
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  void discard(std::span<const TransmitFrame> frames) noexcept override { wire_->discard(frames); }
  void poll(Nanoseconds now) noexcept override { wire_->poll(now); }
  Nanoseconds next_event() const noexcept override { return wire_->next_event(); }
  int wait_descriptor() const noexcept override { return wire_->wait_descriptor(); }
  bool register_memory(std::span<std::byte> memory) noexcept override { return wire_->register_memory(memory); }
  void forget_memory(std::span<std::byte> memory) noexcept override { wire_->forget_memory(memory); }
  // The wire's, and capture_frames, capture_dropped, capture_bytes, capture_running.
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  Capture(std::unique_ptr<Driver> wire, std::string file, std::unique_ptr<CaptureFile> capture)
      : wire_(std::move(wire)), file_(std::move(file)), capture_(std::move(capture)) {}

  std::unique_ptr<Driver> wire_;
  std::string file_;
  std::unique_ptr<CaptureFile> capture_;
};

}  // namespace unet::drivers
