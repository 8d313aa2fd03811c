// capture.h - a wrapper that writes the frames of a wire to a pcapng file, for tcpdump and Wireshark; made by apps/drivers.
//
// It records what the engine receives and what the wire has taken. Its place among the wrappers decides what it sees:
// "capture:file=a.pcapng / faulty:loss=1% / ..." records the frames that the engine sent, lost ones too. The header capture_file.h says
// what happens when the disk is slow or full. A frame costs one copy; without this wrapper it costs nothing.
#pragma once

#include <memory>

#include "drivers/capture/capture_file.h"
#include "drivers/wrapper.h"

namespace unet::drivers {

class Capture final : public Wrapper {
 public:
  // Takes over `wire`, and destroys it on an error. Errors: those of CaptureFile::start().
  static Result<std::unique_ptr<Driver>> wrap(std::unique_ptr<Driver> wire, const CaptureOptions& options);

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  // The wire's counters, and capture_frames, capture_dropped, capture_bytes, capture_running.
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  Capture(std::unique_ptr<Driver> wire, std::string file, std::unique_ptr<CaptureFile> capture)
      : Wrapper(std::move(wire)), file_(std::move(file)), capture_(std::move(capture)) {}

  std::string file_;
  std::unique_ptr<CaptureFile> capture_;
};

}  // namespace unet::drivers
