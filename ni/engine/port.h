// port.h - one wire as the engine uses it: the driver, frames being composed for it, and endpoints that wait for room.
//
// Nothing is lost on the sending side: frames that the driver does not take stay here, and when this is full, messages
// stay in their send queues and their endpoints wait here until the port takes frames again.
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

// Where a port stands among the engines of its NI; that of a single one has no such place.
struct PortPlace {
  uint32_t number = 0;  // by which endpoints know it: an entrance's is that of its port (link.h)
  bool link = false;    // it leads to another engine of this NI, which counts what it puts on a wire
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
  // Room for the pieces of the frame that is being composed, as many as external_pieces() says: until the frame has left.
  std::span<Bytes> pieces() noexcept { return place_of_pieces(next_pieces_++); }
  // As the driver's capabilities say them.
  uint32_t external_pieces() const noexcept { return external_pieces_; }
  uint32_t segments_max() const noexcept { return segments_max_; }
  bool fills_checksums() const noexcept { return fills_checksums_; }
  bool udp_segments() const noexcept { return udp_segments_; }
  uint32_t number() const noexcept { return place_.number; }
  bool link() const noexcept { return place_.link; }
  // Frames may arrive before the commands that they follow from: those went to several engines.
  bool overtakes() const noexcept { return place_.link || place_.shared; }

  // An empty frame to compose, or nullptr: the port takes no more now. The frame is sent by stage() or forgotten.
  TransmitFrame* frame(Nanoseconds now) noexcept {
    if (!room_for_data() && !make_room(now)) [[unlikely]] return nullptr;
    return &frames_[end_];
  }
  // The same for a signal: data, however much of it waits, does not take its place.
  TransmitFrame* signal_frame(Nanoseconds now) noexcept;
  // Queues the frame from either, composed.
  void stage() noexcept { ++end_; }

  // Hands what is staged to the driver.
  void flush(Nanoseconds now) noexcept {
    if (begin_ != end_) transmit(now);
  }
  bool staged() const noexcept { return begin_ != end_; }
  // Takes back what is staged and would be read from `memory`, which goes away.
  void drop_staged(Bytes memory) noexcept;
  // True if frame() would succeed.
  bool has_room(Nanoseconds now) noexcept { return room_for_data() || make_room(now); }

  // Captures that want frames of this port, or nullptr: then a burst costs one comparison.
  void set_taps(FrameTaps* taps, uint32_t index) noexcept {
    taps_ = taps;
    index_ = index;
  }
  void show(std::span<const ReceivedFrame> frames, Nanoseconds now) noexcept {
    if (taps_ != nullptr) [[unlikely]] show_received(frames, now);
  }

  // Endpoints in the order in which they came; used by the mux.
  EndpointState* waiting_first = nullptr;
  EndpointState* waiting_last = nullptr;

 private:
  static constexpr uint32_t kSignalRoom = 8;

  // A frame for a signal that was forgotten stays one for signals.
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
  uint32_t shown_ = 0;  // frames_[begin_, shown_) were seen by the captures: what the driver refuses is seen once
  FrameTaps* taps_ = nullptr;
  uint32_t index_ = 0;
  std::array<TransmitFrame, kBurst + kSignalRoom> frames_;  // the last ones for signals only
  static constexpr uint32_t kPieces = 64;
  static_assert(kPieces >= kBurst + kSignalRoom);           // what so many frames before had has left, or drop_staged() has moved it
  std::span<Bytes> place_of_pieces(uint32_t place) noexcept {
    return std::span(pieces_).subspan(size_t{place % kPieces} * kFragmentsMax, kFragmentsMax);
  }
  std::array<Bytes, size_t{kPieces} * kFragmentsMax> pieces_;
  uint32_t next_pieces_ = 0;
};

}  // namespace unet::engine
