// port.h - one wire as the engine uses it: the driver, frames being composed for it, and endpoints that wait for room.
//
// Nothing is lost on the sending side: frames that the driver does not take stay here, and when this is full, messages
// stay in their send queues and their endpoints wait here until the port takes frames again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "unet/driver.h"
#include "unet/engine/endpoint_state.h"
#include "unet/engine/ni_counters.h"
#include "unet/limits.h"
#include "unet/wire.h"

namespace unet::engine {

class Port {
 public:
  Port(std::unique_ptr<Driver> driver, NiCounters& counters);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  Driver& driver() noexcept { return *driver_; }
  const Driver& driver() const noexcept { return *driver_; }
  const MacAddress& address() const noexcept { return address_; }
  uint64_t address_key() const noexcept { return address_key_; }  // source_key(address, 0)

  // Bytes of a message that one frame carries.
  uint32_t fragment_size(uint8_t flags) const noexcept {
    return (flags & FrameFlags::kPut) != 0 ? put_fragment_ : message_fragment_;
  }
  bool external_payload() const noexcept { return external_payload_; }

  // An empty frame to compose, or nullptr: the port takes no more now. The frame is sent by stage() or forgotten.
  TransmitFrame* frame(Nanoseconds now) noexcept {
    if (staged_count_ == kBurst) [[unlikely]] {
      flush(now);
      if (staged_count_ == kBurst) return nullptr;
    }
    if (empty_count_ == 0 && !refill()) [[unlikely]] return nullptr;
    return &empty_[empty_count_ - 1];
  }
  // Queues the frame from frame(), composed.
  void stage() noexcept { staged_[staged_count_++] = empty_[--empty_count_]; }

  // Hands what is staged to the driver.
  void flush(Nanoseconds now) noexcept;
  bool staged() const noexcept { return staged_count_ != 0; }
  // True if frame() would succeed.
  bool has_room() noexcept { return staged_count_ != kBurst && (empty_count_ != 0 || refill()); }

  // Endpoints in the order in which they came; used by the mux.
  EndpointState* waiting_first = nullptr;
  EndpointState* waiting_last = nullptr;

 private:
  bool refill() noexcept;

  std::unique_ptr<Driver> driver_;
  NiCounters& counters_;
  MacAddress address_{};
  uint64_t address_key_ = 0;
  uint32_t message_fragment_ = 0;
  uint32_t put_fragment_ = 0;
  bool external_payload_ = false;
  uint32_t empty_count_ = 0;
  uint32_t staged_count_ = 0;
  std::array<TransmitFrame, kBurst> empty_;   // allocated, not yet composed
  std::array<TransmitFrame, kBurst> staged_;  // composed, in order
};

}  // namespace unet::engine
