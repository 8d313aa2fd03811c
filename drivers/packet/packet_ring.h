// packet_ring.h - memory that the kernel puts a packet socket's frames into (TPACKET_V2); used by packet_port.
//
// Who sends to this interface copies the frame, in the kernel, on his core and out of his caches: no system call of ours, and less than the
// copy out of the socket's queue took here, whose pages came cold and went back cold. Slots are of one size and are filled in order; one
// that is not given back stops the kernel there, which then drops and counts.
//
// The kernel writes it; yet no offset or length is used before it is checked against its slot.
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
    uint32_t slots = 0;       // a multiple of those of a block
    uint32_t per_block = 0;   // whose bytes are whole pages
  };
  struct Arrival {
    VnetHeader header{};
    std::byte* data = nullptr;  // the frame, until the slot is given back; nullptr: what the slot says cannot be
    uint32_t length = 0;
    bool cut = false;           // there was more
    void* slot = nullptr;
  };

  // The socket has its header (PACKET_VNET_HDR), and is not bound yet. Null: this kernel, or its memory, does not do it; errno says why.
  static std::unique_ptr<PacketRing> map(int socket, const Geometry& geometry);
  // Makes it anew: no slot is taken, and frames that it had are lost. False: it has no memory, and so no frames, until that works.
  bool renew() noexcept;
  void unmap() noexcept;
  bool is_mapped() const noexcept { return memory_ != nullptr; }
  PacketRing(const PacketRing&) = delete;
  PacketRing& operator=(const PacketRing&) = delete;
  ~PacketRing();

  bool has_frame() const noexcept;
  // Of the next frame, if there is one: when it came, in nanoseconds of the host's clock, by which those of two rings are put in order.
  uint64_t came() const noexcept;
  // The next frame; there is one.
  Arrival take() noexcept;
  // What a slot of so many bytes says.
  static Arrival read(void* slot, uint32_t bytes) noexcept;
  // In any order.
  static void give_back(void* slot) noexcept;

 private:
  PacketRing(int socket, const Geometry& geometry) noexcept : socket_(socket), geometry_(geometry) {}
  bool map() noexcept;
  std::byte* next() const noexcept { return memory_ + size_t{geometry_.slot_bytes} * at_; }

  const int socket_;  // its owner's
  const Geometry geometry_;
  std::byte* memory_ = nullptr;
  uint32_t at_ = 0;
};

}  // namespace unet::drivers
