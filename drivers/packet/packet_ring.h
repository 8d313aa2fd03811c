// packet_ring.h - a ring of memory in which the kernel stores a packet socket's frames (TPACKET_V2); used by packet_port.
//
// The sender to this interface copies the frame, in the kernel, on the sender's core and from its caches. Receiving needs no system call.
// The socket's queue costs more, because its pages are cold on each use. Slots have one size and are filled in order. The kernel stops at a
// slot that is not given back, and then drops and counts frames.
//
// The kernel writes this memory, but every offset and length is checked against its slot before use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "drivers/vnet_header.h"

namespace unet::drivers {

class PacketRing {
 public:
  struct Geometry {
    uint32_t slot_bytes = 0;  // a multiple of 16
    uint32_t slots = 0;       // a multiple of per_block
    uint32_t per_block = 0;   // a block is a multiple of the page size
  };
  struct Arrival {
    VnetHeader header{};
    std::byte* data = nullptr;  // the frame, until the slot is given back; nullptr: the slot's header is invalid
    uint32_t length = 0;
    bool cut = false;           // the frame was longer
    void* slot = nullptr;
  };

  // The socket must have PACKET_VNET_HDR set and must not be bound yet. Null: the kernel cannot do it or has no memory; errno says why.
  static std::unique_ptr<PacketRing> map(int socket, const Geometry& geometry);
  // Makes the ring anew: no slot is taken, and its frames are lost. False: there is no memory, and no frames arrive until a later call
  // succeeds.
  bool renew() noexcept;
  void unmap() noexcept;
  bool is_mapped() const noexcept { return memory_ != nullptr; }
  PacketRing(const PacketRing&) = delete;
  PacketRing& operator=(const PacketRing&) = delete;
  ~PacketRing();

  bool has_frame() const noexcept;
  // Arrival time of the next frame, if there is one, in nanoseconds of the host's clock. It orders the frames of two rings.
  uint64_t came() const noexcept;
  // Takes the next frame; there must be one.
  Arrival take() noexcept;
  // Parses a slot of `bytes` bytes.
  static Arrival read(void* slot, uint32_t bytes) noexcept;
  // Gives a slot back to the kernel; any order is allowed.
  static void give_back(void* slot) noexcept;

 private:
  PacketRing(int socket, const Geometry& geometry) noexcept : socket_(socket), geometry_(geometry) {}
  bool map() noexcept;
  std::byte* next() const noexcept { return memory_ + size_t{geometry_.slot_bytes} * at_; }

  const int socket_;  // belongs to the caller of map()
  const Geometry geometry_;
  std::byte* memory_ = nullptr;
  uint32_t at_ = 0;
};

}  // namespace unet::drivers
