// pcap_files.h - a wire of two capture files: frames arrive from one, and sent frames go to the other; made by apps/drivers, for tests, to
// replay captures, and to see what an NI sends.
//
// Files are read and written in the caller's thread, so the disk limits the wire's speed. Timestamps are the time of day at the first frame
// sent, and advance with the engine's time. The file read may be pcap or pcapng, with Ethernet frames of any type.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>

#include "drivers/pcap/frame_port.h"
#include "unet/base/result.h"

struct pcap;
struct pcap_dumper;

namespace unet::drivers {

struct PcapFilesOptions {
  std::string read;      // empty: no frames arrive
  std::string write;     // empty: sent frames vanish; an existing file is replaced
  bool timed = false;    // frames arrive at the intervals at which they were captured; else as fast as they are taken
  MacAddress address{0x02, 0, 0, 0, 0, 0x01};  // of this port
  uint32_t mtu = 1500;
};

class PcapFiles final : public FramePort {
 public:
  static Result<std::unique_ptr<PcapFiles>> open(const PcapFilesOptions& options);
  ~PcapFiles() override;

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  void poll(Nanoseconds now) noexcept override;
  // Zero while there is something to read; ~0 at the end of the file.
  Nanoseconds next_event() const noexcept override;
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;
  std::shared_ptr<WireState> state() const override { return state_; }

 private:
  explicit PcapFiles(const PcapFilesOptions& options);
  Status open_read();
  Status open_write();
  void look_ahead() noexcept;
  bool write(const TransmitFrame& frame, Nanoseconds now) noexcept;

  PcapFilesOptions options_;
  pcap* reader_ = nullptr;
  pcap* writer_ = nullptr;  // only describes the file's format
  pcap_dumper* dumper_ = nullptr;
  struct stat read_status_{};  // of the file that is read

  const std::shared_ptr<WireState> state_ = std::make_shared<WireState>();
  uint64_t packets_ = 0;  // packets read, of any length

  // The next frame, in libpcap's memory until the next look_ahead(); length 0: none.
  const void* next_ = nullptr;
  uint32_t next_length_ = 0;
  Nanoseconds next_captured_ = 0;
  Nanoseconds first_captured_ = 0, started_ = 0;  // timed: the first frame's time in the file, and its time of arrival
  bool begun_ = false;

  Nanoseconds epoch_ = 0;  // time of day minus `now`, set at the first frame sent
  Nanoseconds next_flush_ = ~Nanoseconds{0};  // when sent frames must be in the file
  struct Counters {
    uint64_t rx_frames = 0, rx_bytes = 0, rx_oversize = 0, rx_errors = 0, rx_ended = 0;
    uint64_t tx_frames = 0, tx_bytes = 0, tx_errors = 0;
  } counters_;
};

}  // namespace unet::drivers
