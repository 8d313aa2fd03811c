// raw_pcap.h - bare libpcap on an interface: the cost of frames without U-Net; the baseline of unet-bench for the pcap wire, as raw_bench
// is for DPDK.
//
// It is written like a program for libpcap: pcap_inject() and pcap_dispatch() on its own handle, with PcapLive's settings. Payloads are
// copied into and out of the frames. The frames have their own Ethernet type, so that neither port sees the other's.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "ni/driver.h"
#include "unet/base/result.h"

struct pcap;

namespace unet::drivers {

class RawPcap {
 public:
  // Errors: those of PcapLive::open().
  static Result<std::unique_ptr<RawPcap>> open(const std::string& interface);
  ~RawPcap();
  RawPcap(const RawPcap&) = delete;
  RawPcap& operator=(const RawPcap&) = delete;

  void set_peer(const MacAddress& peer) noexcept;

  // Sends one frame with `size` bytes of `data`. False if the interface did not take it.
  bool try_send(const std::byte* data, size_t size) noexcept;

  // Receives one frame, if one has arrived, and copies `size` bytes of its payload out.
  bool try_receive(std::byte* into, size_t size) noexcept { return receive_burst(into, size, 1) == 1; }

  // Payloads lie back to back. Both return the number of frames, at most kBurst.
  size_t send_burst(const std::byte* data, size_t size, size_t count) noexcept;
  size_t receive_burst(std::byte* into, size_t size, size_t count) noexcept;

 private:
  static constexpr size_t kBurst = 32;
  static constexpr size_t kFrameMax = 14 + 9600;
  struct Arrivals;
  RawPcap(pcap* handle, const DriverCapabilities& capabilities);

  pcap* handle_;
  uint32_t mtu_;
  std::array<std::byte, kFrameMax> frame_{};  // its Ethernet header stays the same
};

}  // namespace unet::drivers
