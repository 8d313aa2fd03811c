// local_channel.h - a channel between two processes of one host: slots and data in memory that only these two map; used by Endpoint.
//
// No third party is on the path. A message of up to kInlineMax bytes is one cache line, which the sender writes and the receiver reads in
// place. Copies of a payload byte: one by send() (none with reserve()/post()), none on reception. While the two sides take turns, a message
// of up to kInSlotsMax bytes travels in consecutive slots, and is copied once more by each side.
//
// Trust: the peer may write anything anywhere in this memory at any time. Lengths and offsets are read once and checked against the
// geometry that the NI gave. Values out of range are dropped and counted. One thread at a time uses the sending half, and one the receiving
// half (they may differ).
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "unet/base/eventfd_wake.h"
#include "unet/base/fence.h"
#include "unet/base/result.h"
#include "unet/base/trust.h"
#include "unet/control.h"
#include "unet/data_ring.h"
#include "unet/mapping.h"
#include "unet/message.h"
#include "unet/ring.h"

namespace unet {

// Counters of the receiving and sending halves; each kind of drop has a name.
struct LocalCounters {
  uint64_t sent_messages = 0;
  uint64_t sent_bytes = 0;
  uint64_t received_messages = 0;
  uint64_t received_bytes = 0;
  uint64_t bad_descriptor = 0;  // the peer wrote an impossible kind, length or offset
  uint64_t wakeups = 0;         // system calls made to wake the peer

  LocalCounters& operator+=(const LocalCounters& other) noexcept {
    sent_messages += other.sent_messages;
    sent_bytes += other.sent_bytes;
    received_messages += other.received_messages;
    received_bytes += other.received_bytes;
    bad_descriptor += other.bad_descriptor;
    wakeups += other.wakeups;
    return *this;
  }
};

class LocalChannel {
 public:
  // `memory` is the channel's sealed memory, `sleep` the eventfd on which this side sleeps, `wake` the peer's. The channel owns all three.
  static Result<std::unique_ptr<LocalChannel>> open(Channel id, const control::ChannelInfo& info, Descriptor memory,
                                                    Descriptor sleep, Descriptor wake);

  // ---- sending half

  SendOutcome send(const std::byte* data, uint32_t length) noexcept {
    if (__builtin_expect(length > kInlineMax, 0)) return send_long(data, length);
    Slot* slot = writer_.reserve();
    if (__builtin_expect(slot == nullptr, 0)) return no_slot();
    copy_small(slot->payload, data, length);
    publish(slot, length, SlotKind::inline_data);
    return SendOutcome::sent;
  }
  SendOutcome send(Bytes data) noexcept {
    return send(data.data(), data.size() <= kMessageMax ? static_cast<uint32_t>(data.size()) : kMessageMax + 1);
  }

  // Sends a message of `length` bytes, at most kInlineMax, that compose(std::byte*) writes straight into its slot.
  template <typename Compose>
  SendOutcome send_composed(uint32_t length, Compose compose) noexcept {
    Slot* const slot = writer_.reserve();
    if (__builtin_expect(slot == nullptr, 0)) return no_slot();
    compose(slot->payload);
    publish(slot, length, SlotKind::inline_data);
    return SendOutcome::sent;
  }

  // Returns room for a message of `length` bytes, which the caller composes in place; empty if there is none now. There is one reservation:
  // a second reserve() or a send() replaces it.
  MutableBytes reserve(uint32_t length) noexcept;
  // Sends the first `length` bytes of the reservation.
  SendOutcome post(uint32_t length) noexcept;

  // Sends a message of two parts. The head, at most kHeadedMax bytes, travels in the slot, and `data` in lines of its own. The receiver
  // fetches these while it reads the head.
  SendOutcome send_headed(Bytes head, Bytes data) noexcept;
  // Sends the reservation like post(), with a head.
  SendOutcome post_headed(uint32_t length, Bytes head) noexcept;

  // Copies `data` into the peer's exposed region. With `notify` the peer receives a put_done after the bytes have arrived.
  SendOutcome put(uint64_t region_offset, Bytes data, bool notify) noexcept;
  void set_peer_region(Mapping region) noexcept { peer_region_ = std::move(region); }
  const Mapping& peer_region() const noexcept { return peer_region_; }
  // Sets the size of the region that this side exposes; a put_done of the peer is checked against it.
  void set_own_region(uint64_t bytes) noexcept { own_region_bytes_ = bytes; }

  // ---- receiving half

  // Receives the next message, in place. False if there is none.
  bool receive(Message& message) noexcept {
    uint64_t word = 0;
    const Slot& slot = reader_.look(word);
    const uint64_t length = reader_.inline_length(word);
    if (__builtin_expect(length <= (kChecked ? kInlineMax : Mark::kLengthMax), 1)) {
      message.data = slot.payload;
      message.length = static_cast<uint32_t>(length);
      message.channel = id_;
      message.kind = MessageKind::message;
      message.from_local = true;
      message.position = reader_.position();
      reader_.advance();
      count_received(message.length);
      return true;
    }
    if (reader_.is_full(word)) return receive_other(slot, word, message);
    // All slots of the next message are fetched at the same time.
    for (uint32_t i = 1; i < expected_slots_; ++i) __builtin_prefetch(&reader_.slot_at(reader_.position() + i));
    return false;
  }

  // The head of a message of kind `headed`, valid until its release. The peer can still write to it and to the data.
  Bytes head(const Message& message) const noexcept {
    const bool in_ring = static_cast<uint64_t>(message.data - in_data_) < data_bytes_;
    const std::byte* const at = in_ring ? reader_.slot_at(message.position).payload : message.data - sizeof(HeadedDescriptor);
    uint32_t length;
    std::memcpy(&length, at + offsetof(HeadedDescriptor, head_length), sizeof length);
    if (!checked(length <= kHeadedMax)) return {};
    return {at + offsetof(HeadedDescriptor, head), length};
  }

  // Gives a message's memory back, in any order. Memory returns to the sender in order of arrival.
  void release(const Message& message) noexcept { release_at(message.position); }

  // Call this when no message has arrived: returns all released memory to the sender now.
  void flush_credits() noexcept {
    if (released_ != reader_.published()) give_back_now();
  }

  bool has_message() const noexcept {
    Mark mark{};
    return reader_.peek(mark) != nullptr;
  }

  // ---- sleeping

  // Call this before sleeping on descriptor(): asks the peer to write to it. `often`: this side sleeps often, and asks the peer for fences.
  // Then the caller executes heavy_fence() and checks once more. If this returns true, the peer already executes fences, and the caller
  // skips heavy_fence().
  bool announce_sleep(bool for_room, bool often = false) noexcept;
  // The peer wakes this side seldom, because its wake-ups take long. A caller that sleeps longer than this may sleep although a message has
  // arrived.
  static constexpr Nanoseconds kSleepMax = 100 * kMillisecond;
  bool woken_seldom() const noexcept {
    return in_->seldom.value.load(std::memory_order_relaxed) != 0 || out_->seldom.value.load(std::memory_order_relaxed) != 0;
  }
  // Call this after waking, or after deciding not to sleep: withdraws the request. Watch descriptor() edge-triggered.
  void end_sleep() noexcept;
  // Whether there is room for the last refused send or reserve().
  bool has_room() noexcept;
  int descriptor() const noexcept { return sleep_.get(); }

  Channel id() const noexcept { return id_; }
  // Counters of both halves. Call this only while neither half is in use.
  LocalCounters counters() const noexcept { return LocalCounters(sent_) += received_; }

 private:
  LocalChannel(Channel id, const control::ChannelInfo& info, Mapping memory, Descriptor sleep, Descriptor wake);

  void publish(Slot* slot, uint32_t length, SlotKind kind) noexcept {
    writer_.publish(slot, length, kind);
    count_sent(length);
  }
  void count_sent(uint32_t length) noexcept {
    ++sent_.sent_messages;
    sent_.sent_bytes += length;
    light_fence();
    if (__builtin_expect(out_->receiver_asleep.fenced.load(std::memory_order_relaxed) != 0, 0)) fence_for_receiver();
    if (__builtin_expect(out_->receiver_asleep.value.load(std::memory_order_relaxed) != 0, 0)) wake_receiver();
  }
  void count_received(uint32_t length) noexcept {
    ++received_.received_messages;
    received_.received_bytes += length;
    last_received_.store(reader_.position(), std::memory_order_relaxed);
  }
  SendOutcome no_slot() noexcept {
    refused_length_ = 0;
    return SendOutcome::full;
  }
  SendOutcome send_long(const std::byte* data, uint32_t length) noexcept;
  uint64_t find_room(uint32_t size) noexcept;
  void commit(uint64_t offset, uint32_t size) noexcept;
  // Whether the last message of more than a slot was sent after the last one was received.
  bool streams() const noexcept { return answered_ == last_received_.load(std::memory_order_relaxed); }
  bool sends_in_slots(uint32_t bytes) noexcept;
  bool is_in_slots(uint32_t length) const noexcept { return reserved_in_slots_ && reserved_length_ != 0 && length <= reserved_length_; }
  SendOutcome publish_in_slots(Bytes message) noexcept;
  SendOutcome publish_headed_in_slots(Bytes head, Bytes data) noexcept;
  void begin_in_slots() noexcept;
  bool receive_in_slots(bool headed, Message& message) noexcept;
  // `word`: the slot's mark. A Mark would go through memory: its parts are stored, and loaded as one word, which waits for the stores.
  bool receive_other(const Slot& slot, uint64_t word, Message& message) noexcept;
  bool receive_data(uint64_t offset, uint32_t length, MessageKind kind, Message& message) noexcept;
  template <typename Describe>
  SendOutcome post_as(SlotKind kind, uint32_t length, Describe describe) noexcept;
  void release_at(uint32_t position) noexcept {
    const bool received = released_ != reader_.position();
    if (__builtin_expect(position == released_ && out_of_order_ == 0 && received, 1)) {
      ++released_;
      if (reader_.gives_back(released_)) give_back_now();
      return;
    }
    release_out_of_order(position);
  }
  void release_out_of_order(uint32_t position) noexcept;
  void wake_receiver() noexcept;
  void fence_for_receiver() noexcept;
  // The credit is stored last: the sender waits for it, and gets the cache line once with all three.
  void give_back_now() noexcept {
    in_->consumed.messages.store(received_.received_messages, std::memory_order_relaxed);
    in_->consumed.bytes.store(received_.received_bytes, std::memory_order_relaxed);
    reader_.give_back_now(released_);
    wake_waiting_sender();
  }
  void wake_waiting_sender() noexcept {
    light_fence();
    if (__builtin_expect(in_->sender_waiting.value.load(std::memory_order_relaxed) != 0, 0)) wake_sender();
  }
  void wake_sender() noexcept;
  // One half's policy for waking a sleeping peer. A peer with several long wake-ups, each within kForget of the last, gets them seldom: its
  // announcement stays, and a later message or credit finds it again. It is told first, so that its sleeps are not longer than kSleepMax.
  class PeerWake {
   public:
    // Returns true if it wrote to the eventfd. `seldom` tells the peer that wake-ups may be skipped.
    bool wake(std::atomic<uint32_t>& announced, std::atomic<uint32_t>& seldom, int eventfd) noexcept;

   private:
    static constexpr Nanoseconds kLong = kMillisecond;
    static constexpr uint32_t kFew = 3;  // a loaded machine makes one or two wake-ups long
    static constexpr Nanoseconds kForget = 10 * kSecond;
    static constexpr uint64_t kRest = 100;  // minimum pause between long wake-ups, as a multiple of their duration

    EventfdWake wake_;
    uint32_t long_ones_ = 0;
    Nanoseconds last_long_ = 0, not_before_ = 0;
  };

  struct alignas(16) InSlots {
    std::array<std::byte, kInSlotsMax> bytes;
  };

  // Used on every send.
  SlotWriter writer_;
  LocalControl* out_ = nullptr;  // control words of the direction in which we send
  uint32_t fenced_sends_ = 0;    // sends in a row to a receiver that was awake
  LocalCounters sent_;  // of the sending half, including its wake-ups
  // Used on every receive.
  SlotReader reader_;
  LocalControl* in_ = nullptr;
  Channel id_{};
  uint32_t released_ = 0;      // all messages before this position are released
  uint32_t out_of_order_ = 0;  // messages released after released_
  uint32_t expected_slots_ = 1;  // of the next message: as many as the last one had
  LocalCounters received_;     // of the receiving half
  std::atomic<uint32_t> last_received_{0};  // a position; read by the sending half, too

  std::byte* out_data_ = nullptr;
  const std::byte* in_data_ = nullptr;
  uint64_t data_bytes_ = 0;
  uint64_t own_region_bytes_ = 0;
  DataRing ring_;
  uint64_t reserved_offset_ = DataRing::kNone;
  uint32_t reserved_length_ = 0;
  uint32_t refused_length_ = 0;  // bytes that the data ring had no room for; 0: the slots were full
  std::vector<bool> released_early_;  // by slot
  uint32_t answered_ = 0;             // last_received_ when the last message of more than a slot was sent
  bool reserved_in_slots_ = false;    // the reservation is composed_
  InSlots composed_{};                // the reservation if it is to be sent in slots
  std::unique_ptr<InSlots[]> assembled_;  // messages received in slots, by their last slots; made for the first one
  Mapping memory_;
  Mapping peer_region_;
  Descriptor sleep_;
  Descriptor wake_;
  PeerWake wake_receiver_, wake_sender_;  // one per half
};

}  // namespace unet
