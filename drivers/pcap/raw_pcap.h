// raw_pcap.h - bare libpcap on an interface: what frames cost with nothing of U-Net around them; the baseline of unet-bench for
// the pcap wire, as raw_bench is for DPDK's.
//
// Written as a program for libpcap would be: pcap_inject() and pcap_dispatch() with the settings that PcapLive has, on a handle
// of its own. Payloads are copied into and out of the frames, which have an Ethernet type of their own, so that neither sees
// the other's.
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
  // Errors as PcapLive's.
  static Result<std::unique_ptr<RawPcap>> open(const std::string& interface);
  ~RawPcap();
  RawPcap(const RawPcap&) = delete;
  RawPcap& operator=(const RawPcap&) = delete;

  void set_peer(const MacAddress& peer) noexcept;

  // One frame with `size` bytes of `data`. False if the interface did not take it.
  bool try_send(const std::byte* data, size_t size) noexcept;

  // One frame's payload, if one has arrived: copies `size` bytes out.
  bool try_receive(std::byte* into, size_t size) noexcept { return receive_burst(into, size, 1) == 1; }

  // Payloads stand back to back; both return how many there were, at most kBurst.
  size_t send_burst(const std::byte* data, size_t size, size_t count) noexcept;
  size_t receive_burst(std::byte* into, size_t size, size_t count) noexcept;

 private:
  static constexpr size_t kBurst = 32;
  static constexpr size_t kFrameMax = 14 + 9600;
  struct Arrivals;
  RawPcap(pcap* handle, const DriverCapabilities& capabilities);

  pcap* handle_;
  uint32_t mtu_;
  std::array<std::byte, kFrameMax> frame_{};  // its Ethernet header stays
};

}  // namespace unet::drivers
