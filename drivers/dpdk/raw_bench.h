// raw_bench.h - the bare port: the cost of frames without U-Net; the baseline of unet-bench.
//
// RawLink is written like a DPDK program: buffers from the pool with rte_pktmbuf_alloc, then rte_eth_tx_burst, rte_eth_rx_burst and
// rte_pktmbuf_free. It works on a port that DpdkPort has opened, so device, pool and settings are the same. The engine must not use the
// port meanwhile. Payloads are copied into and out of the frames. Each frame has an Ethernet header with its own type; other frames are
// skipped.
//
// The peer of a memif port must stay until a raw run ends: nothing protects a bare port.
#pragma once

#include <atomic>

#include "drivers/dpdk/dpdk_port.h"

namespace unet::drivers {

class RawLink {
 public:
  static constexpr size_t kBurst = 32;

  // `port` belongs to the caller and must outlive the link. Only the calling thread may use the link.
  RawLink(DpdkPort& port, const MacAddress& peer) noexcept;

  // Maximum payload of a frame, in bytes.
  uint32_t payload_max() const noexcept { return payload_max_; }

  // Sends one frame with `size` bytes of `data`. False if the port did not take it.
  bool try_send(const std::byte* data, size_t size) noexcept;

  // Receives one frame, if one has arrived, and copies `size` bytes of its payload out.
  bool try_receive(std::byte* into, size_t size) noexcept;

  // Sends up to kBurst frames from consecutive payloads. Returns how many the port took.
  size_t send_burst(const std::byte* data, size_t size, size_t count) noexcept;

  // Copies up to min(count, kBurst) arrived payloads out, consecutively. Returns how many.
  size_t receive_burst(std::byte* into, size_t size, size_t count) noexcept;

 private:
  uint16_t port_id_;
  rte_mempool* pool_;
  uint32_t payload_max_;
  MacAddress peer_;
  MacAddress own_;
};

// Limits of the loops below; `stop` may be null.
struct RawLimits {
  Nanoseconds timeout = 10 * kSecond;         // for the whole loop
  Nanoseconds resend = 20 * kMillisecond;     // raw_ping repeats a frame that has not come back after this time
  const std::atomic<bool>* stop = nullptr;
};

// Makes round trips with raw_echo at the other end, and takes one sample (in cycles()) per `batch` of them. Returns how many it made.
uint64_t raw_ping(DpdkPort& port, const MacAddress& peer, uint32_t size, uint64_t iterations, uint32_t batch,
                  std::vector<uint64_t>& samples, const RawLimits& limits = {});
uint64_t raw_echo(DpdkPort& port, const MacAddress& peer, uint32_t size, uint64_t iterations, const RawLimits& limits = {});

// A one-way stream in bursts of 32. The receiver returns how many frames came before a pause of 100 ms.
uint64_t raw_stream_send(DpdkPort& port, const MacAddress& peer, uint32_t size, uint64_t frames, const RawLimits& limits = {});
uint64_t raw_stream_receive(DpdkPort& port, uint32_t size, uint64_t frames, uint64_t& elapsed_cycles, const RawLimits& limits = {});

}  // namespace unet::drivers
