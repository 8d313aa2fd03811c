// delivery.h - puts messages into endpoints' receive queues, wherever they come from; used by the demux and the mux.
//
// Whole message or nothing: a message that finds no room is dropped and counted at the receiver. Copies of a payload
// byte: one, from where it lies (a frame, the sender's segment) to the slot, receive buffer or exposed region.
// Receivers are woken by flush(), once per batch.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ni/engine/endpoint_state.h"
#include "ni/engine/ni_counters.h"
#include "ni/engine/reassembly.h"
#include "ni/engine/wake.h"
#include "unet/base/bytes.h"

namespace unet::engine {

class Delivery {
 public:
  Delivery(NiCounters& counters, Reassembly& reassembly) noexcept : reassembly_(reassembly), waker_(counters) {}

  Waker& waker() noexcept { return waker_; }

  // A message of at most kInlineMax bytes. True: delivered, as for the calls below.
  bool short_message(EndpointState& to, uint32_t channel, const std::byte* data, uint32_t length) noexcept {
    Slot* const slot = to.receive.reserve();
    if (slot == nullptr) [[unlikely]] return drop(to, EndpointCounter::receive_queue_full);
    copy_small(slot->payload, data, length);
    to.receive_checkpoint->announce(to.receive.position() + 1);
    publish(to, slot, channel, length, SlotKind::inline_data);
    return true;
  }

  // True if a quarter of the queue is free. False: dropped as if it were full, so that such messages leave room for others.
  bool leaves_room(EndpointState& to) noexcept {
    const auto has_quarter = [&] { return to.receive.room() > to.receive.depth() / 4; };
    return has_quarter() || (to.receive.refresh() && has_quarter()) || drop(to, EndpointCounter::receive_queue_full);
  }

  // A message of any length.
  bool message(EndpointState& to, uint32_t channel, const Pieces& from) noexcept {
    return message(to, channel, std::span(from.pieces).first(from.count), from.length);
  }
  bool message(EndpointState& to, uint32_t channel, std::span<const Bytes> pieces, uint32_t length) noexcept;

  // A put: into the exposed region, with a put_done descriptor if `notify`.
  bool put(EndpointState& to, uint32_t channel, uint64_t region_offset, const Pieces& from, bool notify) noexcept;

  // Takes the buffers for a message of `length` > 0 bytes; false: dropped and counted.
  bool take_buffers(EndpointState& to, uint32_t length, RunList& runs) noexcept;
  // Checks that a put of `length` bytes lies in the exposed region; false: dropped and counted.
  bool check_region(EndpointState& to, uint64_t region_offset, uint32_t length) noexcept;

  // A message that lies complete in `runs`. If it is dropped, the buffers are given back.
  bool runs_message(EndpointState& to, uint32_t channel, const RunList& runs, uint32_t length) noexcept;
  bool put_done(EndpointState& to, uint32_t channel, uint64_t region_offset, uint32_t length) noexcept;
  // A put without notification is complete.
  void put_counted(EndpointState& to, uint32_t messages, uint32_t bytes) noexcept {
    to.received_messages += messages;
    to.received_bytes += bytes;
    touch(to);
  }

  // End of a batch: counters to the segments, sleeping receivers woken.
  void flush() noexcept {
    if (touched_count_ != 0) flush_touched();
  }

 private:
  bool drop(EndpointState& to, EndpointCounter reason) noexcept;
  void flush_touched() noexcept;

  void publish(EndpointState& to, Slot* slot, uint32_t channel, uint32_t length, SlotKind kind) noexcept {
    slot->channel = channel;
    to.receive.publish(slot, length, kind);
    ++to.received_messages;
    to.received_bytes += length;
    touch(to);
  }
  void touch(EndpointState& to) noexcept {
    if (to.touched) return;
    if (touched_count_ == touched_.size()) [[unlikely]] flush_touched();
    to.touched = true;
    touched_[touched_count_++] = &to;
  }

  Reassembly& reassembly_;
  Waker waker_;
  uint32_t touched_count_ = 0;
  std::array<EndpointState*, 2 * kBurst> touched_{};  // receivers of this batch
};

}  // namespace unet::engine
