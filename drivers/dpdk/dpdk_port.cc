// dpdk_port.cc - the data path of a DPDK port.
#include "drivers/dpdk/dpdk_port.h"

#include <algorithm>
#include <new>

#include <poll.h>

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>

#include "drivers/dpdk/external_frame.h"
#include "drivers/dpdk/memif_gate.h"
#include "unet/base/bytes.h"

namespace unet::drivers {

namespace {

constexpr size_t kBurstMax = 64;

// Marks a buffer that the engine holds, in a field that neither U-Net nor DPDK's ports use otherwise; see reclaim_buffers().
constexpr uint32_t kHeld = 0x0e11;
constexpr uint32_t kNotHeld = 0;

rte_mbuf* buffer_of(void* handle) noexcept { return static_cast<rte_mbuf*>(handle); }

std::byte* frame_of(rte_mbuf* buffer) noexcept { return rte_pktmbuf_mtod(buffer, std::byte*); }

// Tells the port which checksum to fill in. The field already has the sum of the pseudo header, as DPDK requires.
void ask_for_checksum(const TransmitFrame& frame, rte_mbuf& buffer) noexcept {
  constexpr uint32_t kTcpWords = 12, kUdpBytes = 8;  // the upper half of this byte of the TCP header is its length
  const uint32_t at = frame.offload.transport_at;
  const bool tcp = frame.offload.transport == TransmitOffload::Transport::tcp;
  const bool ipv4 = std::to_integer<uint32_t>(frame.data[kEthernetBytes]) >> 4 == 4;
  buffer.ol_flags |= (ipv4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6) | (tcp ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM);
  const uint32_t header = tcp ? std::to_integer<uint32_t>(frame.data[at + kTcpWords]) >> 4 << 2 : kUdpBytes;
  buffer.tx_offload = rte_mbuf_tx_offload(kEthernetBytes, at - kEthernetBytes, header, 0, 0, 0, 0);
}

}  // namespace

// Between enter() and leave() the port may be used; see memif_gate.h for the other side.
inline bool DpdkPort::enter() noexcept {
  busy_.store(1, std::memory_order_relaxed);
  // The fence that orders the store before the load is the gate's membarrier(); the compiler must not reorder them.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return __builtin_expect(closed_.load(std::memory_order_acquire) == 0, 1);
}

// release: a gate that sees us outside also sees what we did to the port.
inline void DpdkPort::leave() noexcept { busy_.store(0, std::memory_order_release); }

inline bool DpdkPort::is_checked(const rte_mbuf& buffer) const noexcept {
  const uint64_t state = buffer.ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
  return checks_ && (state == RTE_MBUF_F_RX_L4_CKSUM_GOOD || (state == RTE_MBUF_F_RX_L4_CKSUM_NONE && unfinished_));
}

uint32_t DpdkPort::receive(std::span<ReceivedFrame> frames, Nanoseconds) noexcept {
  rte_mbuf* buffers[kBurstMax];
  uint32_t count = 0;
  if (enter()) count = rte_eth_rx_burst(port_id_, queue_, buffers, static_cast<uint16_t>(std::min(frames.size(), kBurstMax)));
  leave();
  if (count == 0) return 0;
  uint32_t segments = 0;
  for (uint32_t i = 0; i < count; ++i) {
    rte_mbuf* buffer = buffers[i];
    rte_prefetch0(frame_of(buffer));
    segments += buffer->nb_segs;
    buffer->hash.usr = kHeld;
    frames[i] = {.data = frame_of(buffer), .length = buffer->data_len, .checked = is_checked(*buffer), .handle = buffer};
  }
  if (__builtin_expect(segments == count, 1)) return count;
  count = linearise({buffers, count});
  for (uint32_t i = 0; i < count; ++i) {
    buffers[i]->hash.usr = kHeld;
    frames[i] = {.data = frame_of(buffers[i]), .length = buffers[i]->data_len, .checked = is_checked(*buffers[i]), .handle = buffers[i]};
  }
  return count;
}

// Joins frames of several pieces, and drops those that do not fit. Returns how many frames remain.
uint32_t DpdkPort::linearise(std::span<rte_mbuf*> buffers) noexcept {
  uint32_t kept = 0;
  for (rte_mbuf* buffer : buffers) {
    if (buffer->nb_segs == 1) {
      buffers[kept++] = buffer;
      continue;
    }
    rte_mbuf* whole = buffer->pkt_len <= room_ ? rte_pktmbuf_alloc(pool_) : nullptr;
    if (whole == nullptr) {
      ++(buffer->pkt_len <= room_ ? rx_no_buffer_ : rx_oversize_);
    } else {
      std::byte* to = frame_of(whole);
      for (const rte_mbuf* piece = buffer; piece != nullptr; piece = piece->next) {
        copy_bytes(to, rte_pktmbuf_mtod(piece, const std::byte*), piece->data_len);
        to += piece->data_len;
      }
      whole->ol_flags = buffer->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
      whole->data_len = static_cast<uint16_t>(buffer->pkt_len);
      whole->pkt_len = buffer->pkt_len;
      ++linearised_;
      buffers[kept++] = whole;
    }
    rte_pktmbuf_free(buffer);
  }
  return kept;
}

void DpdkPort::release(std::span<const ReceivedFrame> frames) noexcept {
  while (!frames.empty()) {
    void* buffers[kBurstMax];
    uint32_t count = 0;
    const size_t burst = std::min(frames.size(), kBurstMax);
    for (size_t i = 0; i < burst; ++i) {
      rte_mbuf* buffer = buffer_of(frames[i].handle);
      buffer->hash.usr = kNotHeld;
      buffer = rte_pktmbuf_prefree_seg(buffer);
      if (__builtin_expect(buffer != nullptr, 1)) buffers[count++] = buffer;
    }
    rte_mempool_generic_put(pool_, buffers, count, cache_);
    frames = frames.subspan(burst);
  }
}

uint32_t DpdkPort::allocate(std::span<TransmitFrame> frames) noexcept {
  rte_mbuf* buffers[kBurstMax];
  uint32_t done = 0;
  while (done < frames.size()) {
    const auto burst = static_cast<uint32_t>(std::min(frames.size() - done, kBurstMax));
    uint32_t got = burst;
    if (__builtin_expect(rte_mempool_generic_get(pool_, reinterpret_cast<void**>(buffers), burst, cache_) != 0, 0)) {
      for (got = 0; got < burst && rte_mempool_generic_get(pool_, reinterpret_cast<void**>(&buffers[got]), 1, cache_) == 0;) ++got;
    }
    for (uint32_t i = 0; i < got; ++i) {
      rte_mbuf* buffer = buffers[i];
      rte_pktmbuf_reset(buffer);
      buffer->hash.usr = kHeld;
      frames[done + i] = {.data = frame_of(buffer), .length = 0, .handle = buffer};
    }
    done += got;
    if (got < burst) break;
  }
  return done;
}

uint32_t DpdkPort::transmit(std::span<TransmitFrame> frames, Nanoseconds) noexcept {
  uint32_t done = 0;
  while (done < frames.size()) {
    rte_mbuf* buffers[kBurstMax];
    const auto burst = static_cast<uint32_t>(std::min(frames.size() - done, kBurstMax));
    const std::span<TransmitFrame> part = frames.subspan(done, burst);
    uint32_t ready = 0;
    for (; ready < burst; ++ready) {
      TransmitFrame& frame = part[ready];
      rte_mbuf* buffer = buffer_of(frame.handle);
      buffer->data_len = static_cast<uint16_t>(frame.length);
      buffer->pkt_len = frame.length;
      buffer->hash.usr = kNotHeld;
      buffers[ready] = buffer;
      if (__builtin_expect(frame.offload.transport != TransmitOffload::Transport::none, 0)) ask_for_checksum(frame, *buffer);
      if (frame.external != nullptr && !attach_external(frame)) break;
    }
    uint32_t sent = 0;
    if (enter()) sent = rte_eth_tx_burst(port_id_, queue_, buffers, static_cast<uint16_t>(ready));
    leave();
    if (__builtin_expect(sent > ready, 0)) sent = 0;  // net_memif's -1: it could not send an interrupt
    done += sent;
    if (__builtin_expect(sent != burst, 0)) {
      take_back(part.subspan(sent));
      break;
    }
  }
  return done;
}

// Gives frames that the port did not take back to the engine, unchanged.
void DpdkPort::take_back(std::span<TransmitFrame> frames) noexcept {
  for (TransmitFrame& frame : frames) {
    rte_mbuf* buffer = buffer_of(frame.handle);
    buffer->hash.usr = kHeld;
    if (buffer->nb_segs == 1) continue;
    rte_mbuf* payload = buffer->next;
    static_cast<ExternalFrame*>(rte_mbuf_to_priv(payload))->completion = nullptr;
    buffer->next = nullptr;
    buffer->nb_segs = 1;
    rte_pktmbuf_free(payload);
  }
}

void DpdkPort::discard(std::span<const TransmitFrame> frames) noexcept {
  while (!frames.empty()) {
    void* buffers[kBurstMax];
    const size_t burst = std::min(frames.size(), kBurstMax);
    for (size_t i = 0; i < burst; ++i) {
      buffer_of(frames[i].handle)->hash.usr = kNotHeld;
      buffers[i] = frames[i].handle;
    }
    rte_mempool_generic_put(pool_, buffers, static_cast<unsigned>(burst), cache_);
    frames = frames.subspan(burst);
  }
}

// Chains the payload behind the frame's buffer. Returns false if there is no buffer for it: the engine tries again later.
bool DpdkPort::attach_external(TransmitFrame& frame) noexcept {
  rte_mbuf* payload = rte_pktmbuf_alloc(external_pool_);
  if (payload == nullptr) return false;
  auto* const external = static_cast<ExternalFrame*>(rte_mbuf_to_priv(payload));
  external->shared.free_cb = external_done;
  external->shared.fcb_opaque = external;
  rte_mbuf_ext_refcnt_set(&external->shared, 1);
  external->port = this;
  external->completion = frame.completion;
  // The port only reads this memory, but DPDK's interface takes no const pointer.
  void* const address = const_cast<std::byte*>(frame.external);
  rte_pktmbuf_attach_extbuf(payload, address, reinterpret_cast<uintptr_t>(address),
                            static_cast<uint16_t>(frame.external_length), &external->shared);
  payload->data_len = static_cast<uint16_t>(frame.external_length);
  payload->pkt_len = payload->data_len;
  rte_mbuf* buffer = buffer_of(frame.handle);
  buffer->next = payload;
  buffer->nb_segs = 2;
  buffer->pkt_len += frame.external_length;
  ++external_in_flight_;
  return true;
}

// DPDK calls this when the port has finished reading the payload.
void DpdkPort::external_done(void*, void* frame) noexcept {
  auto* const external = static_cast<ExternalFrame*>(frame);
  if (external->completion != nullptr) --external->completion->pending;
  --external->port->external_in_flight_;
}

void DpdkPort::poll(Nanoseconds now) noexcept {
  if (__builtin_expect(rte_lcore_id() != lcore_, 0)) refresh_cache();
  if (__builtin_expect(now >= next_check_, 0)) keep_connected(now);
  if (__builtin_expect(external_in_flight_ != 0, 0) && enter()) rte_eth_tx_done_cleanup(port_id_, queue_, 0);
  leave();
}

Nanoseconds DpdkPort::next_event() const noexcept {
  // net_tap reads its descriptor only after a signal, and a thread may handle the signal after the descriptor has woken the engine. Without
  // this check the frame would wait for the next one.
  pollfd waiting{.fd = wait_descriptor_, .events = POLLIN, .revents = 0};
  if (tap_ && ::poll(&waiting, 1, 0) > 0 && (waiting.revents & POLLIN) != 0) return 0;
  return link_was_up_ ? ~Nanoseconds{0} : next_check_;
}

// Finds the pool's cache of the thread that uses the port. One thread at a time uses both, so using the cache of the previous thread would
// be safe. DPDK's own calls in the port would not find it, though.
void DpdkPort::refresh_cache() noexcept {
  eal::register_thread();
  lcore_ = rte_lcore_id();
  cache_ = rte_mempool_default_cache(pool_, lcore_);
}

// A zero-copy memif forgets the buffers in its rings when the peer goes. After a stop, those are the buffers that are neither in the pool
// nor held by the engine.
void DpdkPort::reclaim_buffers() noexcept {
  for (unsigned lcore = 0; lcore < RTE_MAX_LCORE; ++lcore) {
    if (rte_mempool_cache* cache = rte_mempool_default_cache(pool_, lcore)) rte_mempool_cache_flush(cache, pool_);
  }
  constexpr uint32_t kInPool = 0x0900;
  std::unique_ptr<void*[]> all(new (std::nothrow) void*[pool_->size]);
  if (all == nullptr) return;
  uint32_t count = 0;
  while (count < pool_->size && rte_mempool_generic_get(pool_, &all[count], 1, nullptr) == 0) ++count;
  for (uint32_t i = 0; i < count; ++i) static_cast<rte_mbuf*>(all[i])->hash.usr = kInPool;
  rte_mempool_obj_iter(
      pool_,
      [](rte_mempool* pool, void*, void* object, unsigned) {
        auto* const buffer = static_cast<rte_mbuf*>(object);
        if (buffer->hash.usr != kInPool && buffer->hash.usr != kHeld) {
          rte_mbuf_refcnt_set(buffer, 1);
          buffer->next = nullptr;
          buffer->nb_segs = 1;
          rte_mempool_generic_put(pool, &object, 1, nullptr);
        }
        if (buffer->hash.usr == kInPool) buffer->hash.usr = kNotHeld;
      },
      nullptr);
  rte_mempool_generic_put(pool_, all.get(), count, nullptr);
}

bool DpdkPort::register_memory(std::span<std::byte> memory) noexcept {
  if (!capabilities_.external_payload) return false;
  if (!dma_) return true;
  const size_t page = 4096;
  rte_eth_dev_info info{};
  if (reinterpret_cast<uintptr_t>(memory.data()) % page != 0 || memory.size() % page != 0) return false;
  if (rte_extmem_register(memory.data(), memory.size(), nullptr, 0, page) != 0) return false;
  if (rte_eth_dev_info_get(port_id_, &info) == 0 &&
      rte_dev_dma_map(info.device, memory.data(), reinterpret_cast<uintptr_t>(memory.data()), memory.size()) == 0) {
    return true;
  }
  rte_extmem_unregister(memory.data(), memory.size());
  return false;
}

void DpdkPort::forget_memory(std::span<std::byte> memory) noexcept {
  // Frames in flight leave within the time that a wire needs for its queue. A port that still holds some is restarted.
  const Nanoseconds end = monotonic_now() + 100 * kMillisecond;
  while (external_in_flight_ != 0 && monotonic_now() < end) poll(0);
  if (external_in_flight_ != 0) {
    rte_eth_dev_stop(port_id_);
    rte_eth_dev_start(port_id_);
  }
  if (!dma_) return;
  rte_eth_dev_info info{};
  if (rte_eth_dev_info_get(port_id_, &info) == 0) {
    rte_dev_dma_unmap(info.device, memory.data(), reinterpret_cast<uintptr_t>(memory.data()), memory.size());
  }
  rte_extmem_unregister(memory.data(), memory.size());
}

}  // namespace unet::drivers
