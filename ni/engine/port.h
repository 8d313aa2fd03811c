// port.h - one wire as the engine uses it: the driver, frames being composed for it, and endpoints that wait for room.
//
// Nothing is lost on the sending side. Frames that the driver does not take stay here. When this is full, messages stay in their send
// queues, and their endpoints wait here until the port takes frames again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "ni/driver.h"
#include "ni/engine/endpoint_state.h"
#include "ni/engine/ni_counters.h"
#include "unet/limits.h"
#include "unet/wire/frame.h"

namespace unet::engine {

class FrameTaps;

// Place of a port among several engines of its NI; default for a single engine.
struct PortPlace {
  uint32_t number = 0;  // number for endpoints; an entrance has that of its port (link.h)
  bool link = false;    // leads to another engine of this NI, which counts what it puts on a wire
  bool shared = false;  // other engines have queues of the same port
};

class Port {
 public:
  Port(std::unique_ptr<Driver> driver, NiCounters& counters, PortPlace place = {});
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
  // Room for the pieces of the frame that is being composed, as many as external_pieces(); valid until the frame has left.
  std::span<Bytes> pieces() noexcept { return place_of_pieces(next_pieces_++); }
  // From the capabilities of the driver.
  uint32_t external_pieces() const noexcept { return external_pieces_; }
  uint32_t segments_max() const noexcept { return segments_max_; }
  bool fills_checksums() const noexcept { return fills_checksums_; }
  bool udp_segments() const noexcept { return udp_segments_; }
  uint32_t number() const noexcept { return place_.number; }
  bool link() const noexcept { return place_.link; }
  // Frames may arrive before commands that they follow from, as those went to several engines.
  bool overtakes() const noexcept { return place_.link || place_.shared; }

  // An empty frame to compose, or nullptr: the port takes no more now. The frame is sent by stage() or forgotten.
  TransmitFrame* frame(Nanoseconds now) noexcept {
    if (!room_for_data() && !make_room(now)) [[unlikely]] return nullptr;
    return &frames_[end_];
  }
  // frame() for a signal, with room that data cannot take.
  TransmitFrame* signal_frame(Nanoseconds now) noexcept;
  // Queues the composed frame from frame() or signal_frame().
  void stage() noexcept { ++end_; }

  // Hands staged frames to the driver.
  void flush(Nanoseconds now) noexcept {
    if (begin_ != end_) transmit(now);
  }
  bool staged() const noexcept { return begin_ != end_; }
  // Drops staged frames that would be read from `memory`, which is about to be unmapped.
  void drop_staged(Bytes memory) noexcept;
  // True if frame() would succeed.
  bool has_room(Nanoseconds now) noexcept { return room_for_data() || make_room(now); }

  // Captures of this port; nullptr: a burst costs one comparison.
  void set_taps(FrameTaps* taps, uint32_t index) noexcept {
    taps_ = taps;
    index_ = index;
  }
  void show(std::span<const ReceivedFrame> frames, Nanoseconds now) noexcept {
    if (taps_ != nullptr) [[unlikely]] show_received(frames, now);
  }

  // Waiting endpoints in order of arrival; used by the mux.
  EndpointState* waiting_first = nullptr;
  EndpointState* waiting_last = nullptr;

 private:
  static constexpr uint32_t kSignalRoom = 8;

  // A signal frame that was not staged stays reserved for signals.
  bool room_for_data() const noexcept { return end_ != have_ && end_ < kBurst; }
  bool make_room(Nanoseconds now) noexcept;
  void transmit(Nanoseconds now) noexcept;
  void gather_pieces() noexcept;
  void show_received(std::span<const ReceivedFrame> frames, Nanoseconds now) noexcept;
  void show_staged(Nanoseconds now) noexcept;

  std::unique_ptr<Driver> driver_;
  NiCounters& counters_;
  MacAddress address_{};
  uint64_t address_key_ = 0;
  uint32_t message_fragment_ = 0;
  uint32_t put_fragment_ = 0;
  bool external_payload_ = false;
  bool udp_segments_ = false;
  uint32_t segments_max_ = 0;
  bool fills_checksums_ = false;
  uint32_t external_pieces_ = 1;
  const PortPlace place_;
  // frames_[begin_, end_) are composed, frames_[end_, have_) allocated: none is copied on its way.
  uint32_t begin_ = 0, end_ = 0, have_ = 0;
  uint32_t shown_ = 0;  // were captured: a frame that the driver refuses is captured once
  FrameTaps* taps_ = nullptr;
  uint32_t index_ = 0;
  std::array<TransmitFrame, kBurst + kSignalRoom> frames_;  // the last ones for signals only
  static constexpr uint32_t kPieces = 64;
  static_assert(kPieces >= kBurst + kSignalRoom);           // pieces of earlier frames have left, or drop_staged() has moved them
  std::span<Bytes> place_of_pieces(uint32_t place) noexcept {
    return std::span(pieces_).subspan(size_t{place % kPieces} * kFragmentsMax, kFragmentsMax);
  }
  std::array<Bytes, size_t{kPieces} * kFragmentsMax> pieces_;
  uint32_t next_pieces_ = 0;
};

}  // namespace unet::engine
