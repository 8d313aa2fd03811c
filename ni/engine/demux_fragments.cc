// demux_fragments.cc - messages that arrive in several frames: deposited where they belong, delivered when they are whole.
#include <algorithm>

#include "ni/engine/demux.h"
#include "unet/base/bytes.h"

namespace unet::engine {
namespace {

// Copies a fragment to `offset` of a message that lies in the receive buffers `runs`, which are large enough.
void deposit(EndpointState& to, const RunList& runs, uint64_t offset, Bytes payload) noexcept {
  for (uint32_t i = 0; i < runs.count && !payload.empty(); ++i) {
    const uint64_t size = uint64_t{runs.runs[i].count} * to.buffer_size;
    if (offset >= size) {
      offset -= size;
      continue;
    }
    const size_t part = std::min<size_t>(payload.size(), size - offset);
    copy_bytes(to.receive_data + uint64_t{runs.runs[i].first} * to.buffer_size + offset, payload.data(), part);
    payload = payload.subspan(part);
    offset = 0;
  }
}

}  // namespace

// A fragment of a put without notification: nothing waits for the whole put, so only a refusal is stored.
void Demux::put_fragment(const TagEntry& entry, const FrameView& view) noexcept {
  EndpointState& to = *entry.endpoint;
  MessageWindow& window = to.channels[entry.channel].window;
  if (window.fate(view.message) == MessageWindow::Fate::dropped) return;
  if (!delivery_.check_region(to, view.region_offset, view.total)) {
    return window.close(view.message, MessageWindow::Fate::dropped);
  }
  copy_bytes(to.region.data() + view.region_offset + view.offset, view.payload.data(), view.payload.size());
  const bool last = view.offset + view.payload.size() == view.total;
  delivery_.put_counted(to, last ? 1 : 0, static_cast<uint32_t>(view.payload.size()));
}

void Demux::fragment(const TagEntry& entry, const FrameView& view, Nanoseconds now) noexcept {
  EndpointState& to = *entry.endpoint;
  Reassembling* message = reassembly_.find(view.tag, view.message);
  if (message == nullptr) {
    message = begin(entry, view, now);
    if (message == nullptr) return;
  } else if (message->total != view.total || message->flags != view.flags || message->region_offset != view.region_offset) {
    return to.count(EndpointCounter::fragment_mismatch);
  }
  const bool put = (view.flags & FrameFlags::kPut) != 0;
  // The region may have changed since the message began.
  if (put && !delivery_.check_region(to, view.region_offset, view.total)) return reassembly_.abandon(*message);

  const auto length = static_cast<uint32_t>(view.payload.size());
  switch (reassembly_.mark(*message, view.offset, length, now)) {
    case Reassembly::Marked::duplicate: return to.count(EndpointCounter::duplicate_fragment);
    case Reassembly::Marked::overlap: return to.count(EndpointCounter::fragment_mismatch);
    case Reassembly::Marked::fresh: break;
  }
  if (put) {
    copy_bytes(to.region.data() + view.region_offset + view.offset, view.payload.data(), length);
  } else {
    deposit(to, message->runs, view.offset, view.payload);
  }
  if (message->missing == 0) complete(entry, *message);
}

// The first fragment to arrive of a message. nullptr: dropped, counted once for the whole message.
Reassembling* Demux::begin(const TagEntry& entry, const FrameView& view, Nanoseconds now) noexcept {
  EndpointState& to = *entry.endpoint;
  MessageWindow& window = to.channels[entry.channel].window;
  switch (window.fate(view.message)) {
    case MessageWindow::Fate::arrived: to.count(EndpointCounter::duplicate_fragment); return nullptr;
    case MessageWindow::Fate::dropped: return nullptr;
    case MessageWindow::Fate::open: break;
  }
  window.see(view.message);
  const bool put = (view.flags & FrameFlags::kPut) != 0;
  RunList runs;
  const bool room = put ? delivery_.check_region(to, view.region_offset, view.total) : delivery_.take_buffers(to, view.total, runs);
  if (!room) {
    window.close(view.message, MessageWindow::Fate::dropped);
    return nullptr;
  }
  Reassembling* const message = reassembly_.open(to, entry.channel, view.tag, view.message, now);
  if (message == nullptr) {
    to.buffers.give_back(runs);
    to.count(EndpointCounter::reassembly_overflow);
    window.close(view.message, MessageWindow::Fate::dropped);
    return nullptr;
  }
  message->runs = runs;
  message->total = view.total;
  message->missing = view.total;
  message->flags = view.flags;
  message->region_offset = view.region_offset;
  return message;
}

void Demux::complete(const TagEntry& entry, Reassembling& message) noexcept {
  EndpointState& to = *entry.endpoint;
  const bool put = (message.flags & FrameFlags::kPut) != 0;
  const bool delivered = put ? delivery_.put_done(to, entry.channel, message.region_offset, message.total)
                             : delivery_.runs_message(to, entry.channel, message.runs, message.total);
  to.channels[entry.channel].window.close(message.message, delivered ? MessageWindow::Fate::arrived : MessageWindow::Fate::dropped);
  reassembly_.close(message);
}

}  // namespace unet::engine
