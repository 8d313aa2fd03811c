// mux_frames.cc - long messages: cut into frames for a wire, copied or lent to the port; or copied in parts to an endpoint of the same NI.
#include <algorithm>
#include <cstring>
#include <optional>

#include "ni/engine/mux.h"

namespace unet::engine {
bool Mux::can_lend(const EndpointState& endpoint, uint32_t port) const noexcept {
  return ports_[port]->external_payload() && (endpoint.registered_ports >> port & 1) != 0;
}

// The port reads the segment of the endpoint for some frame.
void Mux::linger(EndpointState& endpoint) noexcept {
  ZeroCopy& zero_copy = endpoint.zero_copy;
  if (zero_copy.lingering) return;
  zero_copy.lingering = true;
  zero_copy.boundary = endpoint.send.published();
  lingering_.push_back(&endpoint);
}

// Sends frames of the message under way while the turn lasts.
Mux::Step Mux::send_frames(EndpointState& endpoint, Nanoseconds now) noexcept {
  Outgoing& out = endpoint.outgoing;
  ChannelState* const channel = endpoint.channel(out.channel);
  if (channel != nullptr && channel->kind == ChannelKind::ip) return send_ip_packets(endpoint, now);
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
    const std::byte* const lent = lend && length >= kExternalMin ? out.lend_next(length) : nullptr;
    if (lent == nullptr) out.copy_next(frame->data + header_size(out.flags), length);
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
      linger(endpoint);
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

// Begins the IP message in `outgoing`.
Mux::Step Mux::send_ip(EndpointState& endpoint, uint32_t number, Nanoseconds now) noexcept {
  Outgoing& out = endpoint.outgoing;
  EndpointCounter reason{};
  const IpDatapath::Step begun = ip_->begin(endpoint, out, reason, now);
  if (begun == IpDatapath::Step::dropped) return refuse(endpoint, reason);
  if (begun == IpDatapath::Step::later) return Step::later;
  out.channel = number;
  endpoint.take_slot();
  if (out.active) return send_ip_packets(endpoint, now);
  sent(endpoint, out.pieces.length);
  return Step::sent;
}

Port* Mux::send_ip_now(EndpointState& endpoint, Bytes data, Nanoseconds now) noexcept {
  Outgoing& out = endpoint.outgoing;
  out.pieces.pieces[0] = data;
  out.pieces.count = data.empty() ? 0 : 1;
  out.pieces.length = static_cast<uint32_t>(data.size());
  std::optional<EndpointCounter> reason;
  uint32_t port = 0;
  if (data.size() > kIpMessageMax || !ip_->send_now(endpoint, out, reason, port, now)) return nullptr;
  if (reason) [[unlikely]] {
    endpoint.count(*reason);
    delivery_.flush();  // an error may have been delivered to its sender
  }
  return ports_[port].get();
}

Mux::Step Mux::send_ip_packets(EndpointState& endpoint, Nanoseconds now) noexcept {
  Outgoing& out = endpoint.outgoing;
  while (out.active && endpoint.deficit > 0) {
    EndpointCounter reason{};
    uint32_t port = 0, spent = 0;
    const IpDatapath::Step step = ip_->go_on(endpoint, out, reason, port, spent, now);
    if (step == IpDatapath::Step::blocked) {
      blocked_port_ = port;
      return Step::blocked;
    }
    if (endpoint.zero_copy.pending() != 0) linger(endpoint);
    endpoint.deficit -= spent + kMessageCost;
    if (step == IpDatapath::Step::dropped) {
      out.active = false;
      endpoint.count(reason);
    } else if (!out.active) {
      ++endpoint.sent_messages;
      endpoint.sent_bytes += out.pieces.length;
    }
  }
  return Step::sent;
}

// Returns slots that ports have read. `position`: the first slot that is not completely in frames.
void Mux::complete_sends(EndpointState& endpoint, uint32_t position) noexcept {
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

// Returns slots of endpoints with segments that ports still read; once per poll.
void Mux::complete_lingering() noexcept {
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

// ---- long messages to an endpoint of the same NI

// The message, of more than kPartBytes, is in `outgoing`, as it is for hairpin_put().
bool Mux::hairpin_message(EndpointState& from, EndpointState& to, uint32_t channel, Nanoseconds now) noexcept {
  Outgoing& out = from.outgoing;
  const uint32_t length = out.pieces.length;
  if (to.receive.reserve() == nullptr) return delivery_.message(to, channel, out.pieces);  // drops it
  RunList runs;
  if (!delivery_.take_buffers(to, length, runs)) return false;
  out.begin(0);
  uint64_t left = length;
  for (uint32_t i = 0; i < runs.count; ++i) {
    const uint64_t part = std::min<uint64_t>(left, uint64_t{runs.runs[i].count} * to.buffer_size);
    copy_in_parts(from, to.receive_data + uint64_t{runs.runs[i].first} * to.buffer_size, part, now);
    left -= part;
  }
  return delivery_.runs_message(to, channel, runs, length);
}

bool Mux::hairpin_put(EndpointState& from, EndpointState& to, uint32_t channel, bool notify, Nanoseconds now) noexcept {
  Outgoing& out = from.outgoing;
  const uint32_t length = out.pieces.length;
  if (notify && to.receive.reserve() == nullptr) return delivery_.put(to, channel, out.region_offset, out.pieces, notify);
  if (!delivery_.check_region(to, out.region_offset, length)) return false;
  out.begin(0);
  copy_in_parts(from, to.region.data() + out.region_offset, length, now);
  if (notify) return delivery_.put_done(to, channel, out.region_offset, length);
  delivery_.put_counted(to, 1, length);
  return true;
}

// Copies the next `length` bytes of the message. Other users have turns between the parts.
void Mux::copy_in_parts(EndpointState& from, std::byte* to, uint64_t length, Nanoseconds now) noexcept {
  while (length != 0) {
    const auto part = static_cast<uint32_t>(std::min<uint64_t>(length, kPartBytes));
    from.outgoing.copy_next(to, part);
    to += part;
    length -= part;
    yield_to_others(*from.share, part, now);
  }
}

}  // namespace unet::engine
