// capture.h - a wrapper that writes what passes a wire to a pcapng file, for tcpdump and Wireshark; made by apps/drivers.
//
// What it sees is what the engine receives and what the wire has taken. Compose it on the side of another wrapper that you
// want to see: "capture:file=a.pcapng / faulty:loss=1% / ..." has the frames that the engine sent, lost ones too.
// capture_file.h says what happens when the disk is slow or full. A frame costs a copy; without a wrapper, nothing.
#pragma once

#include <memory>

#include "drivers/capture/capture_file.h"
#include "drivers/wrapper.h"

namespace unet::drivers {

class Capture final : public Wrapper {
 public:
  // Errors: as CaptureFile::start(). The wire is destroyed then.
  static Result<std::unique_ptr<Driver>> wrap(std::unique_ptr<Driver> wire, const CaptureOptions& options);

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  // The wire's, and capture_frames, capture_dropped, capture_bytes, capture_running.
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  Capture(std::unique_ptr<Driver> wire, std::string file, std::unique_ptr<CaptureFile> capture)
      : Wrapper(std::move(wire)), file_(std::move(file)), capture_(std::move(capture)) {}

  std::string file_;
  std::unique_ptr<CaptureFile> capture_;
};

}  // namespace unet::drivers
