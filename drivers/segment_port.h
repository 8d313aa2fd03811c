// segment_port.h - base of ports that pass segments of up to 64 KiB through a descriptor of the kernel: memory, the header before each
// frame, counters; used by packet and tap.
//
// The kernel reads a sent frame in place: first the engine's bytes, then payload in a client's segment. It copies an arriving frame once,
// into the port's memory, when the port reads. A subclass that receives in another way overrides this.
#pragma once

#include <sys/uio.h>

#include <array>
#include <string>

#include "drivers/frame_pool.h"
#include "drivers/refusals.h"
#include "drivers/vnet_header.h"
#include "ni/driver.h"

namespace unet::drivers {

class SegmentPort : public Driver {
 public:
  ~SegmentPort() override;

  const DriverCapabilities& capabilities() const noexcept final { return capabilities_; }
  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  void release(std::span<const ReceivedFrame> frames) noexcept override;
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept final;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept final;
  void discard(std::span<const TransmitFrame> frames) noexcept final;
  int wait_descriptor() const noexcept override { return descriptor_; }
  // The kernel can read all memory of this process, and does so before transmit() returns.
  bool register_memory(std::span<std::byte>) noexcept final { return true; }
  std::vector<DriverCounter> counters() const override;

  // Whether this kernel cuts UDP segments for packet sockets and taps (Linux 6.2).
  static bool kernel_cuts_udp() noexcept;

 protected:
  static constexpr uint32_t kBurst = 32;

  static constexpr uint32_t kExternalPieces = 5;

  // A frame between the kernel and memory: header, the frame's own bytes, and external payload.
  struct Transfer {
    VnetHeader header{};
    std::array<iovec, 2 + kExternalPieces> pieces{};
    uint32_t count = 0;   // number of pieces
    uint32_t length = 0;  // bytes received, including the header
    bool cut = false;     // the frame was longer
  };

  // The port owns `descriptor`. Without `segments`, frames are no longer than the MTU and carry their checksums.
  SegmentPort(const DriverCapabilities& capabilities, int descriptor, bool segments);

  int descriptor() const noexcept { return descriptor_; }
  bool segments() const noexcept { return capabilities_.segments_max != 0; }

  // Fills transfers from the first on, and returns how many. The subclass counts errors, except an empty wire, with count_read_error().
  virtual uint32_t read(std::span<Transfer> transfers) noexcept = 0;
  // Sends transfers from the first on, and returns how many; -1 with errno if the first one failed.
  virtual int write(std::span<Transfer> transfers) noexcept = 0;
  // is_full(): the kernel has no room now. may_be_the_frame(): the kernel may refuse this frame alone.
  virtual bool is_full(int error) const noexcept = 0;
  static bool may_be_the_frame(int error) noexcept;
  void count_read_error() noexcept { ++counters_.rx_errors; }
  // Checks a frame that came with this header. If it is valid, counts it and fills in the rest of `frame`. `data` is the frame's writable
  // memory. `cut`: the frame was longer than its buffer.
  bool accept(const VnetHeader& header, bool cut, std::byte* data, ReceivedFrame& frame) noexcept;

 private:
  struct Counters {
    uint64_t rx_frames = 0, rx_bytes = 0, rx_segments = 0, rx_bad_header = 0, rx_oversize = 0, rx_errors = 0;
    uint64_t tx_frames = 0, tx_bytes = 0, tx_segments = 0, tx_oversize = 0, tx_errors = 0, tx_refused = 0, tx_full = 0;
  };
  void sent(std::span<TransmitFrame> frames) noexcept;

  DriverCapabilities capabilities_;
  const int descriptor_;
  const uint32_t room_;            // maximum bytes of an arriving frame, plus one: a full buffer means that the frame was cut
  FramePool receive_pool_, transmit_pool_;
  std::array<std::byte*, kBurst> empty_{};  // buffers for the next read; nullptr: take one from the pool
  uint32_t burst_ = kBurst;        // frames per read: few if they are long, so that they stay in the cache; one if none came
  std::array<Transfer, kBurst> transfers_;
  Refusals refusals_;
  Counters counters_;
};

}  // namespace unet::drivers
