// mux.cc - turns, visits, and one message to its destination; the order of users is in mux_shares.cc.
#include "ni/engine/mux.h"

#include <algorithm>
#include <utility>

#include "ni/engine/descriptor.h"
#include "ni/engine/wake.h"
#include "unet/base/bytes.h"
#include "unet/base/fence.h"

namespace unet::engine {

Mux::Mux(std::span<const std::unique_ptr<Port>> ports, Delivery& delivery, Watch& watch, NiCounters& counters,
         const CommandMailbox& commands)
    : ports_(ports), delivery_(delivery), watch_(watch), counters_(counters), commands_(commands) {
  lingering_.reserve(kEndpointsMax);
  deferred_.reserve(kEndpointsMax);
}

// Visits the endpoint until its quantum or the poll is over, or another endpoint wants to send.
[[gnu::always_inline]] inline Mux::Visit Mux::process(EndpointState& endpoint, int64_t most, int64_t& spent, Nanoseconds now) noexcept {
  const Share& share = *endpoint.share;
  for (;;) {
    const bool alone = share.first == nullptr && only_user(share);
    const int64_t slice = std::min(endpoint.deficit, alone ? kAloneSliceBytes : kSliceBytes);
    const int64_t rest = endpoint.deficit - slice;
    endpoint.deficit = slice;
    const Visit outcome = share.limited ? visit_limited(endpoint, now) : visit(endpoint, now);
    spent += slice - endpoint.deficit;
    endpoint.deficit += rest;
    if (outcome != Visit::used_up) return outcome;
    watch_.scan([this](EndpointState& other) { activate(other); });
    if (spent >= most || !only_user(share)) return endpoint.deficit > 0 ? Visit::slice_over : Visit::used_up;
    if (endpoint.deficit > 0) continue;
    if (share.first != nullptr) return Visit::used_up;
    endpoint.deficit = endpoint.quantum;  // alone, it owes no endpoint else
  }
}

// Processes the first endpoint of the share, and charges the share. Returns the bytes spent.
[[gnu::always_inline]] inline int64_t Mux::process_share(Share& share, int64_t most, bool& later, Nanoseconds now) noexcept {
  EndpointState& endpoint = take_first(share);
  const uint64_t time_before = std::exchange(time_, share.time);
  const int64_t charged_before = std::exchange(charged_, 0);
  if (!endpoint.granted) {
    // A deficit is owed to other endpoints of the user. Other users are compensated by the time of the share.
    endpoint.deficit = share.first == nullptr && waiting_ == 0 ? endpoint.quantum : endpoint.deficit + endpoint.quantum;
    endpoint.granted = true;
  }
  int64_t spent = 0;
  const Visit outcome = process(endpoint, most, spent, now);
  later = outcome == Visit::later;
  if (later) [[unlikely]] spent += kMessageCost;  // else it would stay first until its wait is over
  finish_visit(endpoint);
  requeue(endpoint, outcome, now);
  if (spent == 0) time_ = time_before;  // nothing was sent
  charge(share, spent - std::exchange(charged_, charged_before));
  return spent;
}

uint32_t Mux::poll_active(Nanoseconds now) noexcept {
  if (unfinished_) admit_waiting(now);
  if (now >= next_release_) [[unlikely]] release_deferred(now);
  uint32_t visits = 0;
  int64_t left = kPollBytes, next_scan = left - kSliceBytes;
  nested_left_ = kPollBytes;
  while (first_ != nullptr && left > 0) {
    Share& share = *first_;
    if (share.limited && defer_if_over(share, now)) [[unlikely]] continue;
    ++visits;
    bool later = false;
    const int64_t spent = process_share(share, std::min(left, kAloneBytes), later, now);
    left = later && share.next == nullptr ? 0 : left - spent - kMessageCost;
    if (left > next_scan) continue;
    next_scan = left - kSliceBytes;
    watch_.scan([this](EndpointState& other) { activate(other); });
  }
  delivery_.flush();
  unfinished_ = !lingering_.empty();
  for (const auto& port : ports_) {
    port->flush(now);
    unfinished_ = unfinished_ || port->staged() || port->waiting_first != nullptr;
  }
  return visits;
}

// `copied` bytes of the share were copied. Shares that have sent less get turns now. No command is taken meanwhile, so both endpoints of
// the message under way stay attached.
void Mux::yield_to_others(Share& share, uint32_t copied, Nanoseconds now) noexcept {
  if (nested_ == kNestedMax) return;
  watch_.scan([this](EndpointState& other) { activate(other); });
  charged_ += copied;
  charge(share, copied);
  if (first_ == nullptr || first_ == &share) [[likely]] return;
  ++nested_;
  bool served = false;
  while (first_ != nullptr && first_ != &share && earlier(first_->time, share.time) && nested_left_ > 0) {
    Share& other = *first_;
    if (other.limited && defer_if_over(other, now)) continue;
    bool later = false;
    nested_left_ -= process_share(other, kSliceBytes, later, now) + kMessageCost;
    served = true;
    if (later) break;
  }
  if (served) delivery_.flush();
  --nested_;
}

void Mux::requeue(EndpointState& endpoint, Visit outcome, Nanoseconds now) noexcept {
  switch (outcome) {
    case Visit::empty:
      endpoint.active = false;
      endpoint.granted = false;
      endpoint.deficit = std::min<int64_t>(endpoint.deficit, 0);
      watch_.set_idle(endpoint, now);
      break;
    case Visit::used_up:
      endpoint.granted = false;
      append(endpoint);
      break;
    case Visit::slice_over:
      prepend(endpoint);
      break;
    case Visit::later:
      append(endpoint);
      break;
    case Visit::limited:
      defer({.until = endpoint.buckets.room_at(endpoint.share->limits.burst), .endpoint = &endpoint});
      break;
    case Visit::blocked: {
      Port& port = *ports_[blocked_port_];
      ++waiting_;
      endpoint.active = true;
      endpoint.waiting_port = static_cast<uint8_t>(blocked_port_);
      endpoint.next = nullptr;
      (port.waiting_last == nullptr ? port.waiting_first : port.waiting_last->next) = &endpoint;
      port.waiting_last = &endpoint;
      break;
    }
  }
}

// Endpoints of ports that take frames again come first, in their order.
void Mux::admit_waiting(Nanoseconds now) noexcept {
  for (const auto& port : ports_) {
    port->flush(now);
    if (port->waiting_first != nullptr && port->has_room(now)) admit(*port);
  }
  complete_lingering();
}

void Mux::admit(Port& port) noexcept {
  EndpointState* last_first = nullptr;
  for (EndpointState *e = port.waiting_first, *after = nullptr; e != nullptr; e = after) {
    after = e->next;
    e->next = last_first;
    last_first = e;
  }
  port.waiting_first = nullptr;
  port.waiting_last = nullptr;
  for (EndpointState *e = last_first, *before = nullptr; e != nullptr; e = before) {
    before = e->next;
    --waiting_;
    e->waiting_port = kNotWaiting;
    prepend(*e, kPatience * e->share->pace);
  }
}

Mux::Visit Mux::visit(EndpointState& endpoint, Nanoseconds now) noexcept {
  while (endpoint.deficit > 0) {
    Step step;
    if (endpoint.outgoing.active) [[unlikely]] {
      step = send_frames(endpoint, now);
    } else {
      const Slot& slot = endpoint.send.slot_at(endpoint.send.position());
      const uint64_t mark = slot.mark.load(std::memory_order_acquire);
      if (static_cast<uint32_t>(mark) != endpoint.send.position() + 1) return Visit::empty;
      step = send(endpoint, slot, mark, now);
    }
    if (step == Step::blocked) return Visit::blocked;
    if (step == Step::later) return Visit::later;
  }
  return Visit::used_up;
}

// Returns slots to the client, wakes it if it waits for slots, and updates its counters.
void Mux::finish_visit(EndpointState& endpoint) noexcept {
  const uint32_t before = endpoint.send.published();
  const uint32_t position = endpoint.send.position() - (endpoint.outgoing.active ? 1 : 0);
  if (endpoint.zero_copy.lingering) [[unlikely]] {
    complete_sends(endpoint, position);
  } else if (position != before) {
    endpoint.send.give_back_now(position);
  }
  if (endpoint.send.published() != before) {
    light_fence();  // between the store of send_consumed and the load of sender_waiting
    delivery_.waker().wake_if_announced(endpoint, endpoint.header->sender_waiting.value);
  }
  if (endpoint.sent_messages != 0) {
    endpoint.count(EndpointCounter::sent_messages, endpoint.sent_messages);
    endpoint.count(EndpointCounter::sent_bytes, endpoint.sent_bytes);
    endpoint.sent_messages = 0;
    endpoint.sent_bytes = 0;
  }
}

EndpointState* Mux::peer_of(const ChannelState& channel) const noexcept {
  EndpointState* const peer = channel.peer;
  return peer->incarnation == channel.peer_incarnation && peer->attached() ? peer : nullptr;
}

void Mux::sent(EndpointState& endpoint, uint32_t length) noexcept {
  endpoint.deficit -= length + kMessageCost;
  ++endpoint.sent_messages;
  endpoint.sent_bytes += length;
}

// Drops, counts and charges a descriptor that cannot be sent.
Mux::Step Mux::refuse(EndpointState& endpoint, EndpointCounter reason) noexcept {
  // The command that opens the channel or claims the port was put before the client could know of it. It may still wait.
  const bool may_be_known = reason == EndpointCounter::unknown_channel || reason == EndpointCounter::bad_ip_port;
  if (may_be_known && commands_.pending()) return Step::later;
  endpoint.take_slot();
  endpoint.deficit -= kMessageCost;
  endpoint.count(reason);
  return Step::sent;
}

// Stages a whole message; its payload is in the frame.
inline void Mux::compose(TransmitFrame& frame, ChannelState& channel, Port& port, uint32_t length) noexcept {
  frame.length = emit_frame(frame.data,
                            {.to = channel.remote, .from = port.address(), .tag = channel.remote_tag,
                             .message = channel.next_message++, .total = length},
                            length);
  port.stage();
}

// `mark`: packed, so that it stays in a register.
Mux::Step Mux::send(EndpointState& endpoint, const Slot& slot, uint64_t mark, Nanoseconds now) noexcept {
  const uint32_t number = __atomic_load_n(&slot.channel, __ATOMIC_RELAXED);  // once: the client may change it
  ChannelState* const channel = endpoint.channel(number);
  const uint32_t length = static_cast<uint32_t>(mark >> 32) - (uint32_t{static_cast<uint8_t>(SlotKind::inline_data)} << 24);
  if (length > kInlineMax || channel == nullptr) [[unlikely]] return send_long(endpoint, channel, number, slot, Mark::unpack(mark), now);
  if (channel->kind == ChannelKind::hairpin) {
    EndpointState* const peer = peer_of(*channel);
    if (peer == nullptr) return refuse(endpoint, EndpointCounter::unknown_channel);
    endpoint.take_slot();
    if (delivery_.short_message(*peer, channel->peer_channel, slot.payload, length)) counters_.add(NiCounter::hairpin_messages);
    sent(endpoint, length);
    return Step::sent;
  }
  if (channel->kind == ChannelKind::ip) [[unlikely]] {
    endpoint.outgoing.pieces.pieces[0] = {slot.payload, length};
    endpoint.outgoing.pieces.count = length == 0 ? 0 : 1;
    endpoint.outgoing.pieces.length = length;
    return send_ip(endpoint, number, now);
  }
  Port& port = *ports_[channel->port];
  TransmitFrame* const frame = port.frame(now);
  if (frame == nullptr) {
    blocked_port_ = channel->port;
    return Step::blocked;
  }
  endpoint.take_slot();
  copy_small(frame->data + kFrameOverhead, slot.payload, length);
  compose(*frame, *channel, port, length);
  sent(endpoint, length);
  return Step::sent;
}

bool Mux::send_now(EndpointState& endpoint, uint32_t number, Bytes data, bool more, Nanoseconds now) noexcept {
  ChannelState* const channel = endpoint.channel(number);
  if (channel == nullptr || endpoint.active || endpoint.outgoing.active || endpoint.share->limited) return false;
  const Slot& queued = endpoint.send.slot_at(endpoint.send.position());
  if (static_cast<uint32_t>(queued.mark.load(std::memory_order_relaxed)) == endpoint.send.position() + 1) return false;
  Port* const port = channel->kind == ChannelKind::wire ? send_frame_now(*channel, data, now)
                     : channel->kind == ChannelKind::ip ? send_ip_now(endpoint, data, now)
                                                        : nullptr;
  if (port == nullptr) return false;
  endpoint.count(EndpointCounter::sent_messages);
  endpoint.count(EndpointCounter::sent_bytes, data.size());
  if (!more) port->flush(now);
  unfinished_ = unfinished_ || port->staged();
  return true;
}

// The port with the staged frame; nullptr: nothing was done.
Port* Mux::send_frame_now(ChannelState& channel, Bytes data, Nanoseconds now) noexcept {
  Port& port = *ports_[channel.port];
  if (data.size() > port.fragment_size(FrameFlags::kMessage)) return nullptr;
  TransmitFrame* const frame = port.frame(now);
  if (frame == nullptr) return nullptr;
  const auto length = static_cast<uint32_t>(data.size());
  if (length <= kInlineMax) copy_small(frame->data + kFrameOverhead, data.data(), length);
  else copy_bytes(frame->data + kFrameOverhead, data.data(), length);
  compose(*frame, channel, port, length);
  return &port;
}

Mux::Step Mux::send_long(EndpointState& endpoint, ChannelState* channel, uint32_t number, const Slot& slot, Mark mark,
                         Nanoseconds now) noexcept {
  Outgoing& out = endpoint.outgoing;
  bool notify = false, good = false;
  if (mark.kind == SlotKind::gather) {
    out.flags = FrameFlags::kMessage;
    const bool ip = channel != nullptr && channel->kind == ChannelKind::ip;
    good = check_gather(endpoint, slot, mark.length, ip ? kIpMessageMax : kMessageMax, out.pieces);
  } else if (mark.kind == SlotKind::put) {
    good = check_put(endpoint, slot, mark.length, out.pieces, out.region_offset, notify);
    out.flags = static_cast<uint8_t>(FrameFlags::kPut | (notify ? FrameFlags::kNotify : 0));
  }
  if (!good) {
    const bool short_message = mark.kind == SlotKind::inline_data && mark.length <= kInlineMax;
    return refuse(endpoint, short_message ? EndpointCounter::unknown_channel : EndpointCounter::bad_send_descriptor);
  }
  if (channel == nullptr) return refuse(endpoint, EndpointCounter::unknown_channel);
  if (channel->kind == ChannelKind::ip) {
    if (mark.kind != SlotKind::gather) return refuse(endpoint, EndpointCounter::bad_send_descriptor);
    return send_ip(endpoint, number, now);
  }

  if (channel->kind == ChannelKind::hairpin) {
    EndpointState* const peer = peer_of(*channel);
    if (peer == nullptr) return refuse(endpoint, EndpointCounter::unknown_channel);
    endpoint.take_slot();
    bool delivered;
    if (mark.length > kPartBytes) [[unlikely]] {
      delivered = mark.kind == SlotKind::gather ? hairpin_message(endpoint, *peer, channel->peer_channel, now)
                                                : hairpin_put(endpoint, *peer, channel->peer_channel, notify, now);
    } else {
      delivered = mark.kind == SlotKind::gather ? delivery_.message(*peer, channel->peer_channel, out.pieces)
                                                : delivery_.put(*peer, channel->peer_channel, out.region_offset, out.pieces, notify);
    }
    if (delivered) counters_.add(NiCounter::hairpin_messages);
    sent(endpoint, mark.length);
    return Step::sent;
  }
  endpoint.take_slot();
  out.active = true;
  out.channel = number;
  out.message = channel->next_message++;
  out.offset = 0;
  out.piece = 0;
  out.piece_offset = 0;
  return send_frames(endpoint, now);
}

}  // namespace unet::engine
