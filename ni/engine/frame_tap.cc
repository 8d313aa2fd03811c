// frame_tap.cc - frames looked at and copied for captures.
#include "ni/engine/frame_tap.h"

#include "unet/base/check.h"

namespace unet::engine {

FrameTap::FrameTap(const StartCapture& what, const EndpointState* endpoint)
    : what_(what), endpoint_(endpoint), ring_(what.memory, what.bytes), writer_(what.writer != nullptr ? *what.writer : own_writer_) {
  if (endpoint == nullptr) return;
  for (uint32_t channel = 0; channel < endpoint->channel_count; ++channel) open(channel, endpoint->channels[channel]);
}

void FrameTap::open(uint32_t channel, const ChannelState& state) {
  if (state.kind != ChannelKind::wire || (what_.channel != kNone && what_.channel != channel)) return;
  outbound_.insert({source_key(state.remote, state.port), static_cast<uint32_t>(state.remote_tag)});
}

void FrameTap::close(uint32_t channel, const ChannelState& state) noexcept {
  if (state.kind != ChannelKind::wire || (what_.channel != kNone && what_.channel != channel)) return;
  outbound_.erase({source_key(state.remote, state.port), static_cast<uint32_t>(state.remote_tag)});
}

void FrameTap::received(const TagTable& tags, uint32_t port, Bytes frame, Nanoseconds now) noexcept {
  if (endpoint_ != nullptr) {
    Tag tag;
    if (!read_tag(frame, tag) || tag == kSignallingTag) return;
    const TagEntry& entry = tags.entry(tag);
    if (entry.tag != tag || entry.endpoint != endpoint_ || (what_.channel != kNone && entry.channel != what_.channel)) return;
    if (entry.source != (address_key(frame.data() + offsetof(EthernetHeader, from)) | port_key(port))) return;
  }
  TransmitFrame plain;
  plain.data = const_cast<std::byte*>(frame.data());
  plain.length = static_cast<uint32_t>(frame.size());
  record(port, false, plain, now);
}

void FrameTap::sent(uint32_t port, const TransmitFrame& frame, Nanoseconds now) noexcept {
  if (endpoint_ != nullptr) {
    Tag tag;
    if (!read_tag({frame.data, frame.length}, tag) || tag == kSignallingTag) return;
    if (outbound_.count({address_key(frame.data) | port_key(port), static_cast<uint32_t>(tag)}) == 0) return;
  }
  record(port, true, frame, now);
}

void FrameTap::record(uint32_t port, bool outbound, const TransmitFrame& frame, Nanoseconds now) noexcept {
  const uint32_t length = frame.size();
  const CaptureRecord record{.time = now,
                             .length = length,
                             .captured = std::min(length, what_.snap_length),
                             .port = static_cast<uint8_t>(port),
                             .outbound = static_cast<uint8_t>(outbound ? 1 : 0),
                             .unused = {}};
  ring_.put(writer_.at, record, {{{frame.data, frame.length}, {frame.external, frame.external_length}}}, frame.further);
}

// Another engine holds the lock for one burst: some microseconds, unless it lost its core.
bool FrameTap::lock_writer() noexcept {
  constexpr int kPatience = 1000;
  for (int i = 0; i < kPatience; ++i) {
    if (!writer_.busy.test_and_set(std::memory_order_acquire)) return true;
  }
  return false;
}

bool FrameTap::begin(size_t frames) noexcept {
  if (what_.writer == nullptr || lock_writer()) return true;
  writer_.missed.fetch_add(frames, std::memory_order_relaxed);
  return false;
}

void FrameTap::show() noexcept { ring_.publish(writer_.at, writer_.missed.load(std::memory_order_relaxed)); }

void FrameTap::publish() noexcept {
  show();
  if (what_.writer != nullptr) writer_.busy.clear(std::memory_order_release);
}

void FrameTap::end() noexcept {
  if (writer_.engines.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  show();  // the last engine: no other writes
  ring_.header().ended.store(1, std::memory_order_release);  // after the last record
}

void FrameTaps::start(const StartCapture& what, const EndpointState* endpoint) {
  UNET_CHECK(what.capture < kCapturesMax && taps_[what.capture] == nullptr);
  taps_[what.capture] = std::make_unique<FrameTap>(what, endpoint);
}

void FrameTaps::stop(uint32_t capture) noexcept {
  if (taps_[capture] != nullptr) taps_[capture]->end();
  taps_[capture].reset();
}

bool FrameTaps::wants_port(uint32_t port) const noexcept {
  return std::any_of(taps_.begin(), taps_.end(), [&](const auto& tap) { return tap != nullptr && wants(*tap, port); });
}

// The owners of a port capture all of its frames. Frames of an endpoint are captured by its engine alone, on any port.
bool FrameTaps::wants(const FrameTap& tap, uint32_t port) const noexcept {
  if (links_ != nullptr && (number(port) >= links_->wires() || (tap.endpoint() == nullptr && links_->is_link(port)))) return false;
  return tap.wants_port(number(port));
}

void FrameTaps::opened(const EndpointState& endpoint, uint32_t channel, const ChannelState& state) {
  for (const auto& tap : taps_) {
    if (tap != nullptr && tap->endpoint() == &endpoint) tap->open(channel, state);
  }
}

void FrameTaps::closed(const EndpointState& endpoint, uint32_t channel, const ChannelState& state) noexcept {
  for (const auto& tap : taps_) {
    if (tap != nullptr && tap->endpoint() == &endpoint) tap->close(channel, state);
  }
}

void FrameTaps::received(uint32_t port, std::span<const ReceivedFrame> frames, Nanoseconds now) noexcept {
  for (const auto& tap : taps_) {
    if (tap == nullptr || !wants(*tap, port) || !tap->begin(frames.size())) continue;
    for (const ReceivedFrame& frame : frames) tap->received(tags_, number(port), {frame.data, frame.length}, now);
    tap->publish();
  }
}

void FrameTaps::sent(uint32_t port, std::span<const TransmitFrame> frames, Nanoseconds now) noexcept {
  for (const auto& tap : taps_) {
    if (tap == nullptr || !wants(*tap, port) || !tap->begin(frames.size())) continue;
    for (const TransmitFrame& frame : frames) tap->sent(number(port), frame, now);
    tap->publish();
  }
}

}  // namespace unet::engine
