// demux.cc - frames: checks that need no table, then the tag; signals to the service.
#include "ni/engine/demux.h"

#include <algorithm>
#include <cstring>

namespace unet::engine {
namespace {

NiCounter counter_of(FrameError error) noexcept {
  switch (error) {
    case FrameError::none:
    case FrameError::not_ours: return NiCounter::not_ours;
    case FrameError::truncated: return NiCounter::truncated;
    case FrameError::bad_version: return NiCounter::bad_version;
    case FrameError::bad_flags: return NiCounter::bad_flags;
    case FrameError::bad_length: return NiCounter::bad_length;
    case FrameError::bad_crc: return NiCounter::bad_crc;
  }
  return NiCounter::not_ours;
}

}  // namespace

void Demux::burst(const Port& port, uint32_t port_index, std::span<const ReceivedFrame> frames, Nanoseconds now) noexcept {
  uint64_t bytes = 0;
  IpDatapath* const ip = ip_ != nullptr && ip_->has(port_index) ? ip_ : nullptr;
  for (size_t i = 0; i < frames.size(); ++i) {
    if (i + 1 < frames.size()) __builtin_prefetch(frames[i + 1].data);
    bytes += frames[i].length;
    if (ip != nullptr && ip->frame(port_index, frames[i], now)) continue;
    frame(port, port_index, frames[i], now);
  }
  if (ip != nullptr) ip->end_burst();
  if (port.link()) return;  // counted by the engine of the wire
  counters_.add(NiCounter::received_frames, frames.size());
  counters_.add(NiCounter::received_bytes, bytes);
}

void Demux::frame(const Port& port, uint32_t port_index, const ReceivedFrame& frame, Nanoseconds now) noexcept {
  if (frame.length < sizeof(EthernetHeader)) [[unlikely]] {
    if (frame.length != 0) counters_.add(NiCounter::not_ours);
    return;
  }
  const uint64_t to = address_key(frame.data);
  const bool to_all = to == kAddressMask;  // the broadcast address
  if (to != port.address_key() && !to_all) [[unlikely]] return counters_.add(NiCounter::not_ours);
  FrameView view;
  const FrameError error = parse_frame({frame.data, frame.length}, view);
  if (error != FrameError::none) [[unlikely]] return counters_.add(counter_of(error));
  if (view.tag == kSignallingTag) [[unlikely]] return signal(port_index, view);
  if (to_all) [[unlikely]] return counters_.add(NiCounter::not_ours);

  const TagEntry& entry = tags_.entry(view.tag);
  if (entry.tag != view.tag || entry.endpoint == nullptr) [[unlikely]] return stray(port, port_index, frame, entry, view.tag);
  if (entry.source != (address_key(frame.data + offsetof(EthernetHeader, from)) | port_key(port_index))) [[unlikely]]
    return counters_.add(NiCounter::wrong_source);
  if (view.flags == FrameFlags::kMessage && view.payload.size() <= kInlineMax && view.payload.size() == view.total) {
    delivery_.short_message(*entry.endpoint, entry.channel, view.payload.data(), view.total);
  } else if (view.payload.size() == view.total) {
    whole_message(entry, view);
  } else if (view.flags == FrameFlags::kPut) {
    put_fragment(entry, view);
  } else {
    fragment(entry, view, now);
  }
}

bool Demux::has_unknown_tag(std::span<const ReceivedFrame> frames) const noexcept {
  return std::any_of(frames.begin(), frames.end(), [this](const ReceivedFrame& frame) {
    Tag tag;
    return read_tag({frame.data, frame.length}, tag) && tags_.entry(tag).tag != tag;
  });
}

// A tag of another engine, which checks the rest, or an unknown tag.
void Demux::stray(const Port& port, uint32_t port_index, const ReceivedFrame& frame, const TagEntry& entry, Tag tag) noexcept {
  if (links_ == nullptr || entry.tag != tag || port.link()) return counters_.add(NiCounter::unknown_tag);
  if (!links_->arrived(port_index, entry.channel, {frame.data, frame.length})) return counters_.add(NiCounter::link_overflow);
  counters_.add(NiCounter::linked_frames);
  counters_.add(NiCounter::linked_bytes, frame.length);
}

void Demux::signal(uint32_t port_index, const FrameView& view) noexcept {
  const bool whole = view.payload.size() == view.total && view.total != 0 && view.total <= kSignalMax;
  if (!whole || view.flags != FrameFlags::kMessage) return counters_.add(NiCounter::bad_signal);
  SignalReceived event{.port = port_index, .from = view.from, .length = view.total, .bytes = {}};
  std::memcpy(event.bytes.data(), view.payload.data(), view.total);
  if (!events_.push(event)) return counters_.add(NiCounter::signal_overflow);
  signalled_ = true;
}

void Demux::whole_message(const TagEntry& entry, const FrameView& view) noexcept {
  Pieces pieces;
  pieces.pieces[0] = view.payload;
  pieces.count = 1;
  pieces.length = view.total;
  if ((view.flags & FrameFlags::kPut) == 0) {
    delivery_.message(*entry.endpoint, entry.channel, pieces);
  } else {
    const bool notify = (view.flags & FrameFlags::kNotify) != 0;
    delivery_.put(*entry.endpoint, entry.channel, view.region_offset, pieces, notify);
  }
}

}  // namespace unet::engine
