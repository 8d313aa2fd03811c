// segment_port.h - what ports have in common that take and give segments of up to 64 KiB by a descriptor of the kernel's: memory, the
// header in front of each frame, counters; used by packet and tap.
//
// A frame sent is read by the kernel where it lies: what the engine wrote, and behind it payload in a client's segment. A frame that
// arrives is copied once, by the kernel, to memory of the port's, when this one reads; or a port has it otherwise, and overrides that.
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
  // The kernel reads any memory of this process's, before transmit() returns.
  bool register_memory(std::span<std::byte>) noexcept final { return true; }
  std::vector<DriverCounter> counters() const override;

  // This kernel cuts UDP for packet sockets and taps (Linux 6.2).
  static bool kernel_cuts_udp() noexcept;

 protected:
  static constexpr uint32_t kBurst = 32;

  static constexpr uint32_t kExternalPieces = 5;

  // A frame on its way between the kernel and memory: header, the frame's own bytes, and what is read elsewhere.
  struct Transfer {
    VnetHeader header{};
    std::array<iovec, 2 + kExternalPieces> pieces{};
    uint32_t count = 0;   // of pieces
    uint32_t length = 0;  // bytes that came, with the header
    bool cut = false;     // there was more
  };

  // `descriptor` becomes the port's. Without `segments` frames are no longer than the MTU, and have their checksums.
  SegmentPort(const DriverCapabilities& capabilities, int descriptor, bool segments);

  int descriptor() const noexcept { return descriptor_; }
  bool segments() const noexcept { return capabilities_.segments_max != 0; }

  // Fills transfers from the first on; how many. An error, but that nothing is there, is counted by its owner: count_error().
  virtual uint32_t read(std::span<Transfer> transfers) noexcept = 0;
  // Sends transfers from the first on; how many, of which -1 stands for an error of the first: errno.
  virtual int write(std::span<Transfer> transfers) noexcept = 0;
  // The error says that the kernel takes no more now; and that it may be that frame alone which it does not take.
  virtual bool is_full(int error) const noexcept = 0;
  static bool may_be_the_frame(int error) noexcept;
  void count_read_error() noexcept { ++counters_.rx_errors; }
  // Whether a frame that came with this header is one: then it is counted, and the rest of `frame` filled in. `data`: the frame's, to be
  // written to. `cut`: there was more of it.
  bool accept(const VnetHeader& header, bool cut, std::byte* data, ReceivedFrame& frame) noexcept;

 private:
  struct Counters {
    uint64_t rx_frames = 0, rx_bytes = 0, rx_segments = 0, rx_bad_header = 0, rx_oversize = 0, rx_errors = 0;
    uint64_t tx_frames = 0, tx_bytes = 0, tx_segments = 0, tx_oversize = 0, tx_errors = 0, tx_refused = 0, tx_full = 0;
  };
  void sent(std::span<TransmitFrame> frames) noexcept;

  DriverCapabilities capabilities_;
  const int descriptor_;
  const uint32_t room_;            // bytes of a frame that arrives, and one more: what fills it was cut
  FramePool receive_pool_, transmit_pool_;
  std::array<std::byte*, kBurst> empty_{};  // places for what comes next; nullptr: to be taken from the pool
  uint32_t burst_ = kBurst;        // frames to be read at a time: a few long ones, so that they stay in the cache; one if none came
  std::array<Transfer, kBurst> transfers_;
  Refusals refusals_;
  Counters counters_;
};

}  // namespace unet::drivers
