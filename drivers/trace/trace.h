// trace.h - a wrapper that writes a line of text per frame, to a file or to stderr; made by apps/drivers, for debugging.
//
//      12.004513 rx 02:00:00:00:00:01 > 02:00:00:00:00:02  message 7 tag 0x72bd0001  64+64 of 300
//
// The number is seconds since the first frame. rx: the engine received it; tx: the wire took it. The engine's thread writes the lines, at
// most 100 ms after the frame, which costs microseconds per frame. A descriptor that takes no more (a full pipe or disk) loses lines, not
// frames; lost lines are counted. For machine-readable output use the capture wrapper, which is faster.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "drivers/wrapper.h"
#include "unet/base/result.h"

namespace unet::drivers {

class Trace final : public Wrapper {
 public:
  // An empty `file` means stderr. Lines are appended to an existing file; only its owner can read a new one.
  static Result<std::unique_ptr<Driver>> wrap(std::unique_ptr<Driver> wire, const std::string& file);
  ~Trace() override;

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  void poll(Nanoseconds now) noexcept override;
  Nanoseconds next_event() const noexcept override;
  // The wire's counters, and trace_lines, trace_lost.
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  static constexpr size_t kLineMax = 240;
  Trace(std::unique_ptr<Driver> wire, std::string file, int descriptor);
  void note(const char* direction, std::span<const std::byte> data, std::span<const std::byte> more, Nanoseconds now) noexcept;
  ssize_t put(std::string_view text) const noexcept;
  void flush() noexcept;
  bool writable() const noexcept;

  std::string file_;
  int descriptor_;
  bool begun_ = false;
  Nanoseconds start_ = 0;                      // time of the first frame
  Nanoseconds next_flush_ = ~Nanoseconds{0};
  std::array<char, 16384> out_{};
  size_t used_ = 0;
  uint64_t lines_in_out_ = 0, lines_ = 0, lost_ = 0;
  std::unique_ptr<std::byte[]> whole_;         // a frame with external payload, made contiguous
};

}  // namespace unet::drivers
