// test_wire.h - a port in the hands of a test: frames are put in and taken out one by one; for the engine's unit tests.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "ni/driver.h"
#include "unet/wire/frame.h"

namespace unet::engine {

using FrameBytes = std::vector<std::byte>;

// The part of the test; the TestPort in the engine points to it, so it must outlive the engine.
struct TestWire {
  DriverCapabilities capabilities{.address = {2, 0, 0, 0, 0, 1}};
  std::deque<FrameBytes> arriving;      // the engine receives these
  std::deque<FrameBytes> sent;          // the engine sent these (external payload included)
  std::deque<TransmitCompletion*> unread;  // external payloads "being read": complete() ends the oldest
  uint32_t transmit_room = ~0u;         // frames that transmit() still takes
  uint32_t allocate_room = ~0u;         // frames that allocate() still hands out
  uint32_t owned_by_engine = 0;         // frames handed out by receive() or allocate() and not given back
  uint32_t registered = 0;              // memory areas known to the port
  uint32_t external_frames = 0;
  uint32_t further_pieces = 0;
  uint16_t segment_size = 0;            // what the port says of all that arrives
  bool checked = false;
  std::vector<TransmitOffload> offloads;   // of all that was sent

  void complete(size_t count = ~size_t{0}) {
    for (; count != 0 && !unread.empty(); --count) {
      --unread.front()->pending;
      unread.pop_front();
    }
  }
};

class TestPort : public Driver {
 public:
  explicit TestPort(TestWire& wire) : wire_(wire) {}

  const DriverCapabilities& capabilities() const noexcept override { return wire_.capabilities; }

  uint32_t receive(std::span<ReceivedFrame> frames, Nanoseconds) noexcept override {
    uint32_t count = 0;
    while (count < frames.size() && !wire_.arriving.empty()) {
      auto* const bytes = new FrameBytes(std::move(wire_.arriving.front()));
      wire_.arriving.pop_front();
      frames[count++] = {.data = bytes->data(), .length = static_cast<uint32_t>(bytes->size()), .segment_size = wire_.segment_size,
                         .checked = wire_.checked, .handle = bytes};
    }
    wire_.owned_by_engine += count;
    return count;
  }
  void release(std::span<const ReceivedFrame> frames) noexcept override {
    for (const ReceivedFrame& frame : frames) delete static_cast<FrameBytes*>(frame.handle);
    wire_.owned_by_engine -= static_cast<uint32_t>(frames.size());
  }
  uint32_t allocate(std::span<TransmitFrame> frames) noexcept override {
    uint32_t count = 0;
    for (; count < frames.size() && wire_.allocate_room != 0; ++count, --wire_.allocate_room) {
      auto* const bytes = new FrameBytes(wire_.capabilities.mtu + sizeof(EthernetHeader));
      frames[count].data = bytes->data();
      frames[count].handle = bytes;
    }
    wire_.owned_by_engine += count;
    return count;
  }
  uint32_t transmit(std::span<TransmitFrame> frames, Nanoseconds) noexcept override {
    uint32_t count = 0;
    for (; count < frames.size() && wire_.transmit_room != 0; ++count, --wire_.transmit_room) {
      TransmitFrame& frame = frames[count];
      auto* const bytes = static_cast<FrameBytes*>(frame.handle);
      bytes->resize(frame.length);
      if (frame.external != nullptr) {
        bytes->insert(bytes->end(), frame.external, frame.external + frame.external_length);
        for (const auto& piece : frame.further) bytes->insert(bytes->end(), piece.begin(), piece.end());
        wire_.further_pieces += static_cast<uint32_t>(frame.further.size());
        wire_.unread.push_back(frame.completion);
        ++wire_.external_frames;
      }
      wire_.sent.push_back(std::move(*bytes));
      wire_.offloads.push_back(frame.offload);
      delete bytes;
    }
    wire_.owned_by_engine -= count;
    return count;
  }
  void discard(std::span<const TransmitFrame> frames) noexcept override {
    for (const TransmitFrame& frame : frames) delete static_cast<FrameBytes*>(frame.handle);
    wire_.owned_by_engine -= static_cast<uint32_t>(frames.size());
  }
  bool register_memory(std::span<std::byte>) noexcept override {
    ++wire_.registered;
    return wire_.capabilities.external_payload;
  }
  void forget_memory(std::span<std::byte>) noexcept override { --wire_.registered; }
  std::vector<DriverCounter> counters() const override { return {}; }
  std::string description() const override { return "test"; }

 private:
  TestWire& wire_;
};

// A frame as the peer NI would send it.
inline FrameBytes make_frame(const FrameFields& fields, Bytes payload) {
  FrameBytes frame(header_size(fields.flags) + payload.size());
  if (!payload.empty()) std::memcpy(frame.data() + header_size(fields.flags), payload.data(), payload.size());
  emit_frame(frame.data(), fields, static_cast<uint32_t>(payload.size()));
  return frame;
}

// All frames of a message, cut as the mux does.
inline std::vector<FrameBytes> make_frames(FrameFields fields, Bytes message, uint32_t mtu = 1500) {
  std::vector<FrameBytes> frames;
  const uint32_t fragment = fragment_payload(mtu, (fields.flags & FrameFlags::kPut) != 0);
  fields.total = static_cast<uint32_t>(message.size());
  do {
    const size_t length = std::min<size_t>(fragment, message.size() - fields.offset);
    frames.push_back(make_frame(fields, message.subspan(fields.offset, length)));
    fields.offset += static_cast<uint32_t>(length);
  } while (fields.offset < message.size());
  return frames;
}

}  // namespace unet::engine
