// raw_bench.cc - runs bare DPDK on an open port.
#include "drivers/dpdk/raw_bench.h"

#include <algorithm>
#include <cstring>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "unet/base/bytes.h"

namespace unet::drivers {

namespace {

// The Ethernet type "local experimental 2" of IEEE 802, so that the engine's frames (type 1) and these never mix.
constexpr uint16_t kRawType = 0x88B6;
constexpr uint32_t kHeader = 14;

struct RawHeader {
  MacAddress to;
  MacAddress from;
  uint16_t type;
};
static_assert(sizeof(RawHeader) == kHeader);

bool is_ours(const rte_mbuf* buffer, size_t size) noexcept {
  return rte_pktmbuf_mtod(buffer, const RawHeader*)->type == rte_be_to_cpu_16(kRawType) && buffer->pkt_len >= kHeader + size &&
         buffer->nb_segs == 1;
}

// The end of a loop. The clock is read once in 1,024 calls.
class Deadline {
 public:
  explicit Deadline(const RawLimits& limits) : stop_(limits.stop), end_(monotonic_now() + limits.timeout) {}
  bool reached() noexcept {
    if ((++looks_ & 1023) != 0) return false;
    return (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) || monotonic_now() >= end_;
  }

 private:
  const std::atomic<bool>* stop_;
  Nanoseconds end_;
  uint32_t looks_ = 0;
};

}  // namespace

RawLink::RawLink(DpdkPort& port, const MacAddress& peer) noexcept
    : port_id_(port.port_id()), pool_(port.pool()), payload_max_(port.capabilities().mtu), peer_(peer), own_(port.capabilities().address) {
  eal::register_thread();
}

bool RawLink::try_send(const std::byte* data, size_t size) noexcept { return send_burst(data, size, 1) == 1; }

bool RawLink::try_receive(std::byte* into, size_t size) noexcept { return receive_burst(into, size, 1) == 1; }

size_t RawLink::send_burst(const std::byte* data, size_t size, size_t count) noexcept {
  rte_mbuf* buffers[kBurst];
  const auto wanted = static_cast<uint16_t>(std::min(count, kBurst));
  if (rte_pktmbuf_alloc_bulk(pool_, buffers, wanted) != 0) return 0;
  const RawHeader header{peer_, own_, rte_cpu_to_be_16(kRawType)};
  for (uint16_t i = 0; i < wanted; ++i) {
    std::byte* frame = rte_pktmbuf_mtod(buffers[i], std::byte*);
    std::memcpy(frame, &header, kHeader);
    copy_bytes(frame + kHeader, data + i * size, size);
    buffers[i]->data_len = static_cast<uint16_t>(kHeader + size);
    buffers[i]->pkt_len = buffers[i]->data_len;
  }
  const uint16_t sent = rte_eth_tx_burst(port_id_, 0, buffers, wanted);
  if (sent < wanted) rte_pktmbuf_free_bulk(buffers + sent, wanted - sent);
  return sent;
}

size_t RawLink::receive_burst(std::byte* into, size_t size, size_t count) noexcept {
  rte_mbuf* buffers[kBurst];
  const uint16_t arrived = rte_eth_rx_burst(port_id_, 0, buffers, static_cast<uint16_t>(std::min(count, kBurst)));
  size_t taken = 0;
  for (uint16_t i = 0; i < arrived; ++i) {
    if (i + 1 < arrived) rte_prefetch0(rte_pktmbuf_mtod(buffers[i + 1], void*));
    if (is_ours(buffers[i], size)) {
      copy_bytes(into + taken * size, rte_pktmbuf_mtod(buffers[i], std::byte*) + kHeader, size);
      ++taken;
    }
    rte_pktmbuf_free(buffers[i]);
  }
  return taken;
}

uint64_t raw_ping(DpdkPort& port, const MacAddress& peer, uint32_t size, uint64_t iterations, uint32_t batch,
                  std::vector<uint64_t>& samples, const RawLimits& limits) {
  RawLink link(port, peer);
  Deadline deadline(limits);
  size = std::clamp<uint32_t>(size, 8, link.payload_max());
  std::vector<std::byte> out(size), in(size);
  uint64_t done = 0, start = cycles();
  while (done < iterations) {
    const uint64_t number = done + 1;
    std::memcpy(out.data(), &number, sizeof(number));
    while (!link.try_send(out.data(), size)) {
      if (deadline.reached()) return done;
    }
    Nanoseconds sent_at = 0;  // read only when the answer is late
    for (uint32_t looks = 1;; ++looks) {
      uint64_t answer = 0;
      if (link.try_receive(in.data(), size)) {
        std::memcpy(&answer, in.data(), sizeof(answer));
        if (answer == number) break;
      }
      if (deadline.reached()) return done;
      if (looks % 4096 == 0) {
        const Nanoseconds now = monotonic_now();
        if (sent_at == 0) sent_at = now;
        if (now - sent_at > limits.resend) {
          link.try_send(out.data(), size);
          sent_at = now;
        }
      }
    }
    if (++done % batch == 0) {
      const uint64_t now = cycles();
      samples.push_back(now - start);
      start = now;
    }
  }
  return done;
}

uint64_t raw_echo(DpdkPort& port, const MacAddress& peer, uint32_t size, uint64_t iterations, const RawLimits& limits) {
  RawLink link(port, peer);
  Deadline deadline(limits);
  size = std::clamp<uint32_t>(size, 8, link.payload_max());
  std::vector<std::byte> data(size);
  uint64_t done = 0;
  while (done < iterations) {
    if (!link.try_receive(data.data(), size)) {
      if (deadline.reached()) return done;
      continue;
    }
    while (!link.try_send(data.data(), size)) {
      if (deadline.reached()) return done;
    }
    std::memcpy(&done, data.data(), sizeof(done));  // the ping's number: repeats count once
  }
  return done;
}

uint64_t raw_stream_send(DpdkPort& port, const MacAddress& peer, uint32_t size, uint64_t frames, const RawLimits& limits) {
  RawLink link(port, peer);
  Deadline deadline(limits);
  size = std::min(size, link.payload_max());
  std::vector<std::byte> data(size * RawLink::kBurst);
  uint64_t sent = 0;
  while (sent < frames) {
    const size_t accepted = link.send_burst(data.data(), size, std::min<uint64_t>(RawLink::kBurst, frames - sent));
    sent += accepted;
    if (accepted == 0 && deadline.reached()) break;
  }
  return sent;
}

uint64_t raw_stream_receive(DpdkPort& port, uint32_t size, uint64_t frames, uint64_t& elapsed_cycles, const RawLimits& limits) {
  RawLink link(port, MacAddress{});
  Deadline deadline(limits);
  size = std::min(size, link.payload_max());
  std::vector<std::byte> data(size * RawLink::kBurst);
  const auto silence = static_cast<uint64_t>(cycles_per_second() / 10);
  uint64_t arrived = 0, first = 0, last = 0;
  while (arrived < frames) {
    const size_t count = link.receive_burst(data.data(), size, RawLink::kBurst);
    if (count == 0) {
      if (deadline.reached() || (last != 0 && cycles() - last > silence)) break;
      continue;
    }
    last = cycles();
    if (arrived == 0) first = last;
    arrived += count;
  }
  elapsed_cycles = last - first;
  return arrived;
}

}  // namespace unet::drivers
