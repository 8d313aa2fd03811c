// pcap_live.h - a wire over an interface of the kernel, by libpcap; made by apps/drivers. It works wherever tcpdump works, also where
// neither AF_XDP nor DPDK's packet sockets do.
//
// A filter passes only frames of our Ethernet type that are for this station or for all, and none that this port sent. Under a wrapper that
// converts frames, it passes all Ethernet types. The kernel copies each frame once, each way. The port copies it once more, between its own
// memory and the ring that libpcap shares with the kernel. Sending a frame is one system call, and so is polling an empty wire.
//
// While the interface is down, frames are lost and counted; when it comes up again they pass. An interface that is deleted and made anew
// under its name is bound again (link_watch.h).
#pragma once

#include <memory>
#include <string>

#include "drivers/interface_claim.h"
#include "drivers/link_watch.h"
#include "drivers/pcap/frame_port.h"
#include "drivers/refusals.h"
#include "unet/base/result.h"

struct pcap;

namespace unet::drivers {

struct PcapOptions {
  std::string interface;  // interface name, in the caller's network namespace
  uint32_t mtu = 0;       // 0: the MTU of the interface
  bool all_types = false; // also frames of other Ethernet types: for a wrapper that converts them
};

class PcapLive final : public FramePort {
 public:
  // Errors: not_found (no such interface), already_exists (another port uses it), unavailable (it is down, or no right), invalid_argument.
  static Result<std::unique_ptr<PcapLive>> open(const PcapOptions& options);
  ~PcapLive() override;

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds now) noexcept override;
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds now) noexcept override;
  void poll(Nanoseconds now) noexcept override;
  // A short time while the interface is away, because another thread notices its return.
  Nanoseconds next_event() const noexcept override;
  std::shared_ptr<WireState> state() const override { return link_; }
  int wait_descriptor() const noexcept override { return wait_descriptor_; }
  std::vector<DriverCounter> counters() const override;
  std::string description() const override;

 private:
  struct Arrivals;
  struct Counters {
    uint64_t rx_frames = 0, rx_bytes = 0, rx_oversize = 0, rx_errors = 0;
    uint64_t tx_frames = 0, tx_bytes = 0, tx_oversize = 0, tx_errors = 0, tx_refused = 0, tx_full = 0;
  };
  PcapLive(const DriverCapabilities& capabilities, std::string interface, InterfaceClaim claim, pcap* handle, int wait_descriptor,
           bool all_types);

  std::string interface_;
  InterfaceClaim claim_;
  pcap* handle_;
  int wait_descriptor_;
  Counters counters_;
  Refusals refusals_;
  const bool all_types_;
  const std::shared_ptr<LinkWatch> link_;  // null: the interface is not watched
  uint32_t link_changes_ = 0;
  Nanoseconds polled_at_ = 0;
};

}  // namespace unet::drivers
