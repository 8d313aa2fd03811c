// raw_bench.h - the bare port: what frames cost with nothing of U-Net around them; the baseline of unet-bench.
//
// RawLink is written as a DPDK program would be: buffers from the pool with rte_pktmbuf_alloc, rte_eth_tx_burst, rte_eth_
// rx_burst, rte_pktmbuf_free. It works on a port that DpdkPort has opened (the same device, pool and settings as ours
// has), while the engine does not use it. Payloads are copied into and out of the frames; each frame carries an Ethernet
// header of a type of its own, and frames of another type are skipped.
//
// A port over memif must not be left by its peer during a raw run: a bare port has nothing that protects it.
#pragma once

#include <atomic>

#include "drivers/dpdk/dpdk_port.h"

namespace unet::drivers {

class RawLink {
 public:
  static constexpr size_t kBurst = 32;

  // `port` stays the caller's and must live longer. The calling thread is the one that uses the link.
  RawLink(DpdkPort& port, const MacAddress& peer) noexcept;

  // Largest payload of a frame.
  uint32_t payload_max() const noexcept { return payload_max_; }

  // One frame with `size` bytes of `data`. False if the port did not take it.
  bool try_send(const std::byte* data, size_t size) noexcept;

  // One frame's payload, if one has arrived: copies `size` bytes out.
  bool try_receive(std::byte* into, size_t size) noexcept;

  // Up to kBurst frames from payloads that stand back to back; returns how many the port took.
  size_t send_burst(const std::byte* data, size_t size, size_t count) noexcept;

  // Up to min(count, kBurst) arrived payloads, copied out back to back.
  size_t receive_burst(std::byte* into, size_t size, size_t count) noexcept;

 private:
  uint16_t port_id_;
  rte_mempool* pool_;
  uint32_t payload_max_;
  MacAddress peer_;
  MacAddress own_;
};

// Loops over a RawLink that end by themselves: `stop` (may be null) and `timeout` bound them.
struct RawLimits {
  Nanoseconds timeout = 10 * kSecond;         // of the whole loop
  Nanoseconds resend = 20 * kMillisecond;     // raw_ping: a frame that does not come back is sent again after this
  const std::atomic<bool>* stop = nullptr;
};

// Round trips with raw_echo at the other end; one sample (in cycles()) per `batch` of them. Returns how many were made.
uint64_t raw_ping(DpdkPort& port, const MacAddress& peer, uint32_t size, uint64_t iterations, uint32_t batch,
                  std::vector<uint64_t>& samples, const RawLimits& limits = {});
uint64_t raw_echo(DpdkPort& port, const MacAddress& peer, uint32_t size, uint64_t iterations, const RawLimits& limits = {});

// A one-way stream in bursts of 32. The receiver returns how many frames came before nothing came for 100 ms.
uint64_t raw_stream_send(DpdkPort& port, const MacAddress& peer, uint32_t size, uint64_t frames, const RawLimits& limits = {});
uint64_t raw_stream_receive(DpdkPort& port, uint32_t size, uint64_t frames, uint64_t& elapsed_cycles, const RawLimits& limits = {});

}  // namespace unet::drivers
