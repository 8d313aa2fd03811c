// mux_frames.cc - the mux's way to a wire: a message cut into frames, copied or lent to the port, and slots given back.
#include <algorithm>
#include <cstring>

#include "unet/engine/mux.h"

namespace unet::engine {
namespace {

// Copies the next `length` bytes of the message; the caller knows that there are as many.
void copy_next(Outgoing& out, std::byte* to, uint32_t length) noexcept {
  while (length != 0) {
    const Bytes piece = out.pieces.pieces[out.piece];
    const auto part = static_cast<uint32_t>(std::min<uint64_t>(length, piece.size() - out.piece_offset));
    std::memcpy(to, piece.data() + out.piece_offset, part);
    to += part;
    length -= part;
    out.piece_offset += part;
    if (out.piece_offset == piece.size()) {
      ++out.piece;
      out.piece_offset = 0;
    }
  }
}

// The next `length` bytes as one piece of the segment, or nullptr if they are in several.
const std::byte* lend_next(Outgoing& out, uint32_t length) noexcept {
  const Bytes piece = out.pieces.pieces[out.piece];
  if (piece.size() - out.piece_offset < length) return nullptr;
  const std::byte* const data = piece.data() + out.piece_offset;
  out.piece_offset += length;
  if (out.piece_offset == piece.size()) {
    ++out.piece;
    out.piece_offset = 0;
  }
  return data;
}

}  // namespace

bool Mux::can_lend(const EndpointState& endpoint, uint32_t port) const noexcept {
  return ports_[port]->external_payload() && (endpoint.registered_ports >> port & 1) != 0;
}

// Sends frames of the endpoint's message under way while its turn lasts.
Mux::Step Mux::send_frames(EndpointState& endpoint, Nanoseconds now) noexcept {
  Outgoing& out = endpoint.outgoing;
  ChannelState* const channel = endpoint.channel(out.channel);
  if (channel == nullptr || channel->kind != ChannelKind::wire) {  // closed meanwhile
    out.active = false;
    endpoint.count(EndpointCounter::unknown_channel);
    return Step::sent;
  }
  Port& port = *ports_[channel->port];
  const uint32_t fragment = port.fragment_size(out.flags);
  const uint32_t total = out.pieces.length;
  const bool lend = can_lend(endpoint, channel->port);
  while (out.active && endpoint.deficit > 0) {
    TransmitFrame* const frame = port.frame(now);
    if (frame == nullptr) {
      blocked_port_ = channel->port;
      return Step::blocked;
    }
    const uint32_t length = std::min(fragment, total - out.offset);
    const std::byte* const lent = lend && length >= kExternalMin ? lend_next(out, length) : nullptr;
    if (lent == nullptr) copy_next(out, frame->data + header_size(out.flags), length);
    frame->length = emit_frame(frame->data,
                               {.to = channel->remote, .from = port.address(), .tag = channel->remote_tag, .flags = out.flags,
                                .message = out.message, .offset = out.offset, .total = total,
                                .region_offset = out.region_offset},
                               length, lent);
    if (lent != nullptr) {
      ZeroCopy& zero_copy = endpoint.zero_copy;
      frame->external = lent;
      frame->external_length = length;
      frame->completion = &zero_copy.completions[zero_copy.current];
      ++frame->completion->pending;
      if (!zero_copy.lingering) {
        zero_copy.lingering = true;
        zero_copy.boundary = endpoint.send.published();
        lingering_.push_back(&endpoint);
      }
    }
    port.stage();
    out.offset += length;
    endpoint.deficit -= length + kMessageCost;
    if (out.offset == total) {
      out.active = false;
      ++endpoint.sent_messages;
      endpoint.sent_bytes += total;
    }
  }
  return Step::sent;
}

// Gives slots back whose frames the port has read. `position`: the first slot that is not completely in frames.
void Mux::settle(EndpointState& endpoint, uint32_t position) noexcept {
  ZeroCopy& zero_copy = endpoint.zero_copy;
  uint32_t consumed = endpoint.send.published();
  // The older generation ends where the current one began.
  if (zero_copy.completions[zero_copy.current ^ 1].pending == 0) {
    consumed = zero_copy.boundary;
    if (zero_copy.completions[zero_copy.current].pending == 0) {
      consumed = position;
    } else if (position != zero_copy.boundary) {
      zero_copy.current ^= 1;  // the current one becomes the older one
      zero_copy.boundary = position;
    }
  }
  if (consumed != endpoint.send.published()) endpoint.send.give_back_now(consumed);
}

// Looks at the endpoints whose frames ports still read, once per turn.
void Mux::settle_lingering() noexcept {
  for (size_t i = 0; i < lingering_.size();) {
    EndpointState& endpoint = *lingering_[i];
    if (endpoint.zero_copy.pending() == 0) {
      endpoint.zero_copy.lingering = false;
      lingering_[i] = lingering_.back();
      lingering_.pop_back();
    } else {
      ++i;
    }
    finish_visit(endpoint);
  }
}

}  // namespace unet::engine
