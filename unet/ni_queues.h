// ni_queues.h - the client's side of an endpoint's queues to the NI: send, receive and free queue of its segment; used by OwnChannels.
//
// Copies of a payload byte on this side: one by send() into the segment (none with reserve()/post()), none on reception. The client trusts
// the NI as it trusts the kernel; the NI trusts nothing written here. One thread at a time uses the sending half, and one the receiving
// half.
#pragma once

#include <memory>
#include <vector>

#include "unet/base/fence.h"
#include "unet/base/result.h"
#include "unet/data_ring.h"
#include "unet/mapping.h"
#include "unet/message.h"
#include "unet/ring.h"

namespace unet {

// Rings the doorbells of one control connection (ClientPage), and wakes a sleeping engine.
class Doorbells {
 public:
  Doorbells() = default;
  Doorbells(Mapping page, Descriptor engine_wake) noexcept : page_(std::move(page)), engine_wake_(std::move(engine_wake)) {}
  ClientPage* page() const noexcept { return reinterpret_cast<ClientPage*>(page_.data()); }
  void ring(Doorbell bell) noexcept;

 private:
  Mapping page_;
  Descriptor engine_wake_;
};

class NiQueues {
 public:
  // `doorbell` is the bit at engine 0. With Doorbell::kNone the segment stores the doorbell once an engine serves the endpoint.
  NiQueues(Mapping segment, const SegmentGeometry& geometry, Doorbells& doorbells, uint32_t doorbell);

  // ---- sending half; `channel` is checked by the engine

  SendOutcome send(Channel channel, const std::byte* data, uint32_t length) noexcept {
    if (length > kInlineMax) return send_long(channel, data, length);
    Slot* slot = writer_.reserve();
    if (__builtin_expect(slot == nullptr, 0)) return no_slot();
    copy_small(slot->payload, data, length);
    publish(slot, channel, length, SlotKind::inline_data);
    return SendOutcome::sent;
  }
  MutableBytes reserve(uint32_t length) noexcept;
  // Behaves like a reserve() of more than can ever fit.
  void refuse() noexcept {
    reserved_length_ = refused_length_ = 0;
    refused_until_ = 0;
  }
  SendOutcome post(Channel channel, uint32_t length) noexcept;
  // The current reservation, until it is posted or forgotten.
  Bytes reserved() const noexcept {
    return reserved_length_ == 0 ? Bytes() : Bytes(segment_.data() + geometry_.send_data + reserved_offset_, reserved_length_);
  }
  void forget_reserved() noexcept { reserved_length_ = 0; }
  // Takes the last `bytes`, rounded up to pages, of the memory for outgoing messages for the caller. Empty: there were sends before, or too
  // little would remain.
  MutableBytes register_send_memory(uint64_t bytes) noexcept;
  // Sends the first `length` bytes of the reservation, followed by `pieces`: at most kSendPiecesMax, of memory from register_send_memory().
  SendOutcome post(Channel channel, uint32_t length, std::span<const Bytes> pieces) noexcept;
  SendOutcome put(Channel channel, uint64_t region_offset, Bytes data, bool notify) noexcept;

  // ---- receiving half

  bool receive(Message& message) noexcept {
    Mark mark{};
    const Slot* slot = reader_.peek(mark);
    if (slot == nullptr) return false;
    message.channel = Channel{slot->channel};
    message.from_local = false;
    message.position = reader_.position();
    message.length = mark.length;
    message.kind = MessageKind::message;
    reader_.advance();
    if (__builtin_expect(mark.kind == SlotKind::inline_data, 1)) {
      message.data = slot->payload;
    } else {
      receive_long(*slot, mark, message);
    }
    return true;
  }
  void release(const Message& message) noexcept {
    const bool received = released_ != reader_.position();
    if (__builtin_expect(message.position == released_ && out_of_order_ == 0 && received, 1)) {
      if (lies_in_buffers(released_)) free_buffers_of(released_);
      ++released_;
      static_cast<void>(reader_.give_back(released_));
      return;
    }
    release_long(message.position);
  }
  void flush_credits() noexcept {
    if (released_ != reader_.published()) reader_.give_back_now(released_);
  }
  bool has_message() const noexcept {
    Mark mark{};
    return reader_.peek(mark) != nullptr;
  }

  // ---- sleeping: see LocalChannel
  bool announce_sleep(bool for_room, bool often = false) noexcept;
  void end_sleep() noexcept;
  // Whether there is room for the last refused send or reserve(), or notify_completion() is fulfilled if that was called since.
  bool has_room() noexcept;

  // Whether the NI has taken everything that was sent.
  bool all_completed() noexcept { return completed(writer_.written()); }
  // Whether the NI has taken everything that was sent before submitted() had this value.
  bool completed(uint64_t submitted) noexcept { return completed() >= submitted; }
  uint64_t completed() noexcept {
    static_cast<void>(writer_.refresh());
    return writer_.credited();
  }
  void notify_completion(uint64_t submitted) noexcept {
    refused_length_ = 0;
    refused_until_ = submitted;
  }
  uint64_t submitted() const noexcept { return writer_.written(); }  // number of slots written so far

  uint64_t counter(EndpointCounter which) const noexcept {
    return header_->counters[static_cast<size_t>(which)].load(std::memory_order_relaxed);
  }
  uint64_t gathered() const noexcept { return gathered_; }

 private:
  bool may_hold(uint32_t length) const noexcept { return length <= kIpMessageMax && round_up(length, kCacheLine) <= ring_.bytes(); }
  void ring_doorbell() noexcept;
  void publish(Slot* slot, Channel channel, uint32_t length, SlotKind kind) noexcept {
    slot->channel = static_cast<uint32_t>(channel);
    writer_.publish(slot, length, kind);
    light_fence();
    if (header_->engine_watching.value.load(std::memory_order_relaxed) == 0) ring_doorbell();
  }
  SendOutcome no_slot() noexcept {
    refused_length_ = 0;
    refused_until_ = 0;
    return SendOutcome::full;
  }
  template <typename Fields>
  void publish_reserved(Slot* slot, Channel channel, uint32_t length, SlotKind kind, Fields descriptor) noexcept;
  SendOutcome send_long(Channel channel, const std::byte* data, uint32_t length) noexcept;
  void receive_long(const Slot& slot, Mark mark, Message& message) noexcept;
  void receive_runs(const Slot& slot, Message& message) noexcept;
  void release_long(uint32_t position) noexcept;
  bool lies_in_buffers(uint32_t position) const noexcept {
    return Mark::unpack(reader_.slot_at(position).mark.load(std::memory_order_relaxed)).kind == SlotKind::runs;
  }
  void free_buffers_of(uint32_t position) noexcept;
  bool reserve_data(uint32_t length) noexcept;

  Doorbells* doorbells_;
  SegmentHeader* header_;
  uint32_t doorbell_;
  SlotWriter writer_;
  DataRing ring_;
  uint64_t reserved_offset_ = DataRing::kNone;
  uint32_t reserved_length_ = 0;
  uint64_t refused_until_ = 0;   // set by notify_completion(); 0: wait for room only
  uint32_t refused_length_ = 0;  // bytes that the data ring had no room for; 0: the slots were full

  SlotReader reader_;
  FreeWriter free_;
  uint32_t mask_ = 0;              // receive_depth - 1
  uint32_t released_ = 0;          // all messages before this position are released
  uint32_t out_of_order_ = 0;
  std::vector<bool> released_early_;  // by slot
  std::vector<std::unique_ptr<std::byte[]>> scratch_;  // by slot: copies of messages that are not contiguous (rare)
  uint64_t gathered_ = 0;          // number of such copies
  SegmentGeometry geometry_;
  Mapping segment_;
};

}  // namespace unet
