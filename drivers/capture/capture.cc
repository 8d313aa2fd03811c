// capture.cc - copies frames on their way through a capture wrapper.
#include "drivers/capture/capture.h"

#include <algorithm>
#include <array>

namespace unet::drivers {

namespace {

constexpr size_t kBurst = 64;

}  // namespace

Result<std::unique_ptr<Driver>> Capture::wrap(std::unique_ptr<Driver> wire, const CaptureOptions& options) {
  auto capture = CaptureFile::start(options, wire->description(), wire->capabilities().address);
  if (!capture) return tl::unexpected(capture.error());
  return std::unique_ptr<Driver>(new Capture(std::move(wire), options.file, std::move(*capture)));
}

uint32_t Capture::receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept {
  const uint32_t count = wire_->receive(frames, now);
  if (count == 0 || !capture_->running()) return count;
  for (const ReceivedFrame& frame : frames.first(count)) {
    capture_->offer(false, {frame.data, frame.length}, {}, now);
  }
  capture_->publish();
  return count;
}

// The wire may own a frame after it has taken it. Each frame is therefore copied first, and the copies of refused frames are taken back.
uint32_t Capture::transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept {
  if (!capture_->running()) return wire_->transmit(frames, now);
  uint32_t done = 0;
  while (done < frames.size()) {
    const auto burst = frames.subspan(done, std::min(frames.size() - done, kBurst));
    std::array<CapturePositions, kBurst> before;
    for (size_t i = 0; i < burst.size(); ++i) {
      const TransmitFrame& frame = burst[i];
      before[i] = capture_->mark();
      capture_->offer(true, {frame.data, frame.length}, {frame.external, frame.external_length}, now);
    }
    const uint32_t taken = wire_->transmit(burst, now);
    if (taken < burst.size()) capture_->take_back(before[taken]);
    capture_->publish();
    done += taken;
    if (taken < burst.size()) break;
  }
  return done;
}

std::vector<DriverCounter> Capture::counters() const {
  std::vector<DriverCounter> all = wire_->counters();
  all.push_back({"capture_frames", capture_->frames()});
  all.push_back({"capture_dropped", capture_->dropped()});
  all.push_back({"capture_bytes", capture_->written()});
  all.push_back({"capture_running", capture_->running() ? 1u : 0u});
  return all;
}

std::string Capture::description() const { return "capture to " + file_ + " over " + wire_->description(); }

}  // namespace unet::drivers
