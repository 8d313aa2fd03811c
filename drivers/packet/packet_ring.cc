// packet_ring.cc - TPACKET_V2, as Documentation/networking/packet_mmap.rst of Linux describes it.
#include "drivers/packet/packet_ring.h"

#include <linux/if_packet.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <utility>

namespace unet::drivers {
namespace {

// The status of a slot that was taken and not given back. The kernel does not own it, and it counts as empty when the ring comes round.
constexpr uint32_t kTaken = TP_STATUS_COPY;
static_assert(kTaken != TP_STATUS_KERNEL && (kTaken & TP_STATUS_USER) == 0);

tpacket2_hdr& head_of(void* slot) noexcept { return *static_cast<tpacket2_hdr*>(slot); }
uint32_t status_of(void* slot) noexcept { return std::atomic_ref(head_of(slot).tp_status).load(std::memory_order_acquire); }

size_t bytes_of(const PacketRing::Geometry& geometry) noexcept { return size_t{geometry.slot_bytes} * geometry.slots; }

}  // namespace

std::unique_ptr<PacketRing> PacketRing::map(int socket, const Geometry& geometry) {
  const int version = TPACKET_V2;
  if (::setsockopt(socket, SOL_PACKET, PACKET_VERSION, &version, sizeof version) != 0) return nullptr;
  std::unique_ptr<PacketRing> ring(new PacketRing(socket, geometry));
  return ring->map() ? std::move(ring) : nullptr;
}

bool PacketRing::map() noexcept {
  const tpacket_req request{.tp_block_size = geometry_.slot_bytes * geometry_.per_block,
                            .tp_block_nr = geometry_.slots / geometry_.per_block, .tp_frame_size = geometry_.slot_bytes,
                            .tp_frame_nr = geometry_.slots};
  if (::setsockopt(socket_, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0) return false;
  void* const memory = ::mmap(nullptr, bytes_of(geometry_), PROT_READ | PROT_WRITE, MAP_SHARED, socket_, 0);
  if (memory == MAP_FAILED) return false;
  static_cast<void>(::madvise(memory, bytes_of(geometry_), MADV_DONTFORK));  // a child process does not use it
  memory_ = static_cast<std::byte*>(memory);
  return true;
}

void PacketRing::unmap() noexcept {
  if (memory_ != nullptr) ::munmap(memory_, bytes_of(geometry_));
  memory_ = nullptr;
}

bool PacketRing::renew() noexcept {
  unmap();
  at_ = 0;
  const tpacket_req none{};
  return ::setsockopt(socket_, SOL_PACKET, PACKET_RX_RING, &none, sizeof none) == 0 && map();
}

PacketRing::~PacketRing() { unmap(); }

bool PacketRing::has_frame() const noexcept { return is_mapped() && (status_of(next()) & TP_STATUS_USER) != 0; }

uint64_t PacketRing::came() const noexcept {
  const tpacket2_hdr& head = head_of(next());
  return uint64_t{head.tp_sec} * 1'000'000'000 + head.tp_nsec;
}

PacketRing::Arrival PacketRing::take() noexcept {
  std::byte* const slot = next();
  at_ = at_ + 1 == geometry_.slots ? 0 : at_ + 1;
  std::atomic_ref(head_of(slot).tp_status).store(kTaken, std::memory_order_relaxed);
  return read(slot, geometry_.slot_bytes);
}

PacketRing::Arrival PacketRing::read(void* slot, uint32_t bytes) noexcept {
  const tpacket2_hdr& head = head_of(slot);
  const uint32_t at = head.tp_mac, length = head.tp_snaplen;
  Arrival arrival{.length = length, .cut = length != head.tp_len, .slot = slot};
  if (at < sizeof(tpacket2_hdr) + sizeof(VnetHeader) || at > bytes || length > bytes - at) return arrival;
  arrival.data = static_cast<std::byte*>(slot) + at;
  std::memcpy(&arrival.header, arrival.data - sizeof(VnetHeader), sizeof(VnetHeader));
  return arrival;
}

void PacketRing::give_back(void* slot) noexcept {
  std::atomic_ref(head_of(slot).tp_status).store(TP_STATUS_KERNEL, std::memory_order_release);
}

}  // namespace unet::drivers
