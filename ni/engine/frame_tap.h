// frame_tap.h - FrameTap: one running capture, its filter and memory. FrameTaps: all captures of an engine. Used by the engine and its
// ports; a port without a capture has none.
#pragma once

#include <array>
#include <memory>
#include <set>
#include <utility>

#include "ni/driver.h"
#include "ni/engine/endpoint_state.h"
#include "ni/engine/link.h"
#include "ni/engine/mailbox.h"
#include "ni/engine/tag_table.h"
#include "unet/capture_memory.h"

namespace unet::engine {

class FrameTap {
 public:
  FrameTap(const StartCapture& what, const EndpointState* endpoint);

  // Wire channels of the endpoint: identify its outgoing frames, as tags do those that arrive.
  void open(uint32_t channel, const ChannelState& state);
  void close(uint32_t channel, const ChannelState& state) noexcept;
  const EndpointState* endpoint() const noexcept { return endpoint_; }  // nullptr: every frame of the port
  bool wants_port(uint32_t port) const noexcept { return what_.port < 0 || what_.port == static_cast<int32_t>(port); }

  void received(const TagTable& tags, uint32_t port, Bytes frame, Nanoseconds now) noexcept;
  void sent(uint32_t port, const TransmitFrame& frame, Nanoseconds now) noexcept;
  // begin() and end() enclose a burst. False: another engine is copying; the burst counts as missed.
  bool begin(size_t frames) noexcept;
  void publish() noexcept;  // shows the reader what was copied
  void end() noexcept;

 private:
  bool lock_writer() noexcept;
  void show() noexcept;
  void record(uint32_t port, bool outbound, const TransmitFrame& frame, Nanoseconds now) noexcept;

  const StartCapture what_;
  const EndpointState* const endpoint_;
  const CaptureRing ring_;
  // Private: the reader can write all of the memory.
  CaptureWriter own_writer_;
  CaptureWriter& writer_;
  std::set<std::pair<uint64_t, uint32_t>> outbound_;  // source_key() of the peer, its tag
};

// All captures of an engine. Starting and ending one allocates; nothing else does.
class FrameTaps {
 public:
  // `links`: nullptr if there is but one engine.
  explicit FrameTaps(const TagTable& tags, const Links* links = nullptr) : tags_(tags), links_(links) {}

  void start(const StartCapture& what, const EndpointState* endpoint);
  void stop(uint32_t capture) noexcept;
  bool wants_port(uint32_t port) const noexcept;
  void opened(const EndpointState& endpoint, uint32_t channel, const ChannelState& state);
  void closed(const EndpointState& endpoint, uint32_t channel, const ChannelState& state) noexcept;

  // `port`: in the engine's list.
  void received(uint32_t port, std::span<const ReceivedFrame> frames, Nanoseconds now) noexcept;
  void sent(uint32_t port, std::span<const TransmitFrame> frames, Nanoseconds now) noexcept;

 private:
  uint32_t number(uint32_t port) const noexcept { return links_ == nullptr ? port : links_->number(port); }
  bool wants(const FrameTap& tap, uint32_t port) const noexcept;

  const TagTable& tags_;
  const Links* const links_;
  std::array<std::unique_ptr<FrameTap>, kCapturesMax> taps_;
};

}  // namespace unet::engine
