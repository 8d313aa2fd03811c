// local_channel.cc - the parts of a local channel that are not on the path of a small message.
#include "unet/local_channel.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "unet/base/bytes.h"
#include "unet/base/prefetch.h"

namespace unet {

Result<std::unique_ptr<LocalChannel>> LocalChannel::open(Channel id, const control::ChannelInfo& info, Descriptor memory,
                                                         Descriptor sleep, Descriptor wake) {
  if (!valid_options(info.local) || info.side > 1 || !sleep.valid() || !wake.valid()) {
    return fail(Errc::protocol, "the NI described a local channel that cannot be");
  }
  auto mapping = Mapping::map(memory.get(), LocalGeometry::of(info.local).total);
  if (!mapping) return tl::unexpected(mapping.error());
  return std::unique_ptr<LocalChannel>(new LocalChannel(id, info, std::move(*mapping), std::move(sleep), std::move(wake)));
}

LocalChannel::LocalChannel(Channel id, const control::ChannelInfo& info, Mapping memory, Descriptor sleep, Descriptor wake)
    : id_(id), memory_(std::move(memory)), sleep_(std::move(sleep)), wake_(std::move(wake)) {
  const LocalGeometry g = LocalGeometry::of(info.local);
  const uint32_t out = info.side, in = 1 - info.side;
  std::byte* base = memory_.data();
  out_ = reinterpret_cast<LocalControl*>(base + g.control[out]);
  in_ = reinterpret_cast<LocalControl*>(base + g.control[in]);
  writer_ = SlotWriter(reinterpret_cast<Slot*>(base + g.slots[out]), g.depth, &out_->consumed.value);
  reader_ = SlotReader(reinterpret_cast<Slot*>(base + g.slots[in]), g.depth, &in_->consumed.value);
  out_data_ = base + g.data[out];
  in_data_ = base + g.data[in];
  data_bytes_ = g.data_bytes;
  ring_ = DataRing(g.data_bytes, g.depth);
  released_early_.resize(g.depth);
}

SendOutcome LocalChannel::send_long(const std::byte* data, uint32_t length) noexcept {
  if (length > kMessageMax) return SendOutcome::too_long;
  if (sends_in_slots(length)) return publish_in_slots({data, length});
  const MutableBytes room = reserve(length);
  if (room.empty()) return SendOutcome::full;
  copy_bytes(room.data(), data, length);
  return post(length);
}

// Whether to send a message of `bytes` bytes in slots: that takes less time, but streams are faster through the data ring. A message that
// follows a received one is part of no stream. Half of the slots stay for messages that need one each.
bool LocalChannel::sends_in_slots(uint32_t bytes) noexcept {
  return bytes <= kInSlotsMax && !streams() && writer_.has_room(writer_.depth() / 2 + slots_of(bytes));
}

// A message in slots replaces the reservation, and the next one is part of a stream unless something is received before.
inline void LocalChannel::begin_in_slots() noexcept {
  reserved_length_ = 0;
  answered_ = last_received_.load(std::memory_order_relaxed);
}

SendOutcome LocalChannel::publish_in_slots(Bytes message) noexcept {
  const auto length = static_cast<uint32_t>(message.size());
  if (!writer_.has_room(slots_of(length))) return SendOutcome::full;  // other messages took it
  begin_in_slots();
  writer_.publish_in_slots<0>(message, SlotKind::in_slots, [](std::byte*) {});
  count_sent(length);
  return SendOutcome::sent;
}

MutableBytes LocalChannel::reserve(uint32_t length) noexcept {
  reserved_length_ = 0;
  refused_length_ = 0;
  if (length > kMessageMax || writer_.reserve() == nullptr) return {};
  const uint32_t size = std::max(length, 1u);
  reserved_in_slots_ = sends_in_slots(sizeof(HeadedDescriptor) + size);
  if (reserved_in_slots_) {
    reserved_length_ = size;
    return {composed_.bytes.data(), size};
  }
  reserved_offset_ = find_room(size);
  if (reserved_offset_ == DataRing::kNone) return {};
  reserved_length_ = size;
  return {out_data_ + reserved_offset_, size};
}

// Finds room for a message of `size` bytes, at least one. Returns DataRing::kNone if there is none now.
inline uint64_t LocalChannel::find_room(uint32_t size) noexcept {
  // The credits that are known already may be enough. Read the peer's word only if they are not.
  ring_.credit(writer_.credited());
  uint64_t offset = ring_.reserve(size);
  if (__builtin_expect(offset != DataRing::kNone, 1)) return offset;
  writer_.refresh();
  ring_.credit(writer_.credited());
  offset = ring_.reserve(size);
  if (offset == DataRing::kNone) refused_length_ = size;
  return offset;
}

// Takes the memory of a message that goes into the next slot. A stream fetches lines of later messages before it writes them.
inline void LocalChannel::commit(uint64_t offset, uint32_t size) noexcept {
  constexpr uint32_t kAhead = 1024, kLongest = 1024;  // bytes
  ring_.commit(offset, size, writer_.written());
  if (!streams()) {
    answered_ = last_received_.load(std::memory_order_relaxed);
    return;
  }
  const uint64_t next = offset + size + kAhead;
  const uint64_t end = std::min<uint64_t>(next + std::min(size, kLongest), data_bytes_);
  for (uint64_t at = next; at < end; at += kCacheLine) prefetch_for_write(out_data_ + at);
}

namespace {

void describe_headed(std::byte* at, uint64_t offset, Bytes head) noexcept {
  const uint32_t numbers[]{static_cast<uint32_t>(offset), static_cast<uint32_t>(head.size())};
  static_assert(sizeof numbers == offsetof(HeadedDescriptor, head));
  std::memcpy(at, numbers, sizeof numbers);
  copy_small(at + sizeof numbers, head.data(), head.size());
}

}  // namespace

SendOutcome LocalChannel::publish_headed_in_slots(Bytes head, Bytes data) noexcept {
  constexpr uint32_t kBefore = sizeof(HeadedDescriptor);
  const auto length = static_cast<uint32_t>(data.size());
  if (!writer_.has_room(slots_of(kBefore + length))) return SendOutcome::full;  // other messages took it
  begin_in_slots();
  writer_.publish_in_slots<kBefore>(data, SlotKind::headed_in_slots, [&](std::byte* at) { describe_headed(at, 0, head); });
  count_sent(length);
  return SendOutcome::sent;
}

// Sends the reservation; describe(payload) writes the descriptor.
template <typename Describe>
SendOutcome LocalChannel::post_as(SlotKind kind, uint32_t length, Describe describe) noexcept {
  if (length > reserved_length_ || reserved_length_ == 0) return SendOutcome::too_long;
  Slot* const slot = writer_.reserve();
  if (slot == nullptr) return SendOutcome::full;
  describe(slot->payload);
  commit(reserved_offset_, reserved_length_);
  reserved_length_ = 0;
  publish(slot, length, kind);
  return SendOutcome::sent;
}

SendOutcome LocalChannel::post(uint32_t length) noexcept {
  if (is_in_slots(length)) {
    const Bytes message(composed_.bytes.data(), length);
    if (length > kInlineMax) return publish_in_slots(message);
    const SendOutcome outcome = send(message);
    if (outcome == SendOutcome::sent) reserved_length_ = 0;
    return outcome;
  }
  return post_as(SlotKind::local_data, length, [&](std::byte* at) {
    const LocalDataDescriptor descriptor{.offset = reserved_offset_};
    std::memcpy(at, &descriptor, sizeof descriptor);
  });
}

SendOutcome LocalChannel::post_headed(uint32_t length, Bytes head) noexcept {
  if (head.size() > kHeadedMax) return SendOutcome::too_long;
  if (is_in_slots(length)) return publish_headed_in_slots(head, {composed_.bytes.data(), length});
  return post_as(SlotKind::headed, length, [&](std::byte* at) { describe_headed(at, reserved_offset_, head); });
}

SendOutcome LocalChannel::send_headed(Bytes head, Bytes data) noexcept {
  if (data.size() > kMessageMax || head.size() > kHeadedMax) return SendOutcome::too_long;
  Slot* const slot = writer_.reserve();
  if (slot == nullptr) return no_slot();
  const auto length = static_cast<uint32_t>(data.size());
  if (length != 0 && sends_in_slots(sizeof(HeadedDescriptor) + length)) return publish_headed_in_slots(head, data);
  const uint64_t offset = find_room(std::max(length, 1u));
  if (offset == DataRing::kNone) return SendOutcome::full;
  copy_bytes(out_data_ + offset, data.data(), length);
  describe_headed(slot->payload, offset, head);
  commit(offset, std::max(length, 1u));
  reserved_length_ = 0;
  publish(slot, length, SlotKind::headed);
  return SendOutcome::sent;
}

bool LocalChannel::has_room() noexcept {
  if (!writer_.refresh()) return false;
  if (refused_length_ == 0) return true;
  ring_.credit(writer_.credited());
  return ring_.reserve(refused_length_) != DataRing::kNone;
}

SendOutcome LocalChannel::put(uint64_t region_offset, Bytes data, bool notify) noexcept {
  if (region_offset > peer_region_.size() || data.size() > peer_region_.size() - region_offset) {
    return SendOutcome::out_of_bounds;
  }
  if (data.size() > 0xFF'FFFF) return SendOutcome::too_long;  // the maximum of a mark
  Slot* slot = nullptr;
  if (notify) {
    slot = writer_.reserve();
    if (slot == nullptr) return no_slot();
  }
  if (!data.empty()) copy_bytes(peer_region_.data() + region_offset, data.data(), data.size());
  if (notify) {
    const PutDoneDescriptor descriptor{.region_offset = region_offset, .length = data.size()};
    std::memcpy(slot->payload, &descriptor, sizeof descriptor);
    publish(slot, static_cast<uint32_t>(data.size()), SlotKind::put_done);
  }
  return SendOutcome::sent;
}

bool LocalChannel::receive_other(const Slot& slot, uint64_t word, Message& message) noexcept {
  const Mark mark = Mark::unpack(word);
  message.channel = id_;
  message.from_local = true;
  message.position = reader_.position();
  message.length = mark.length;
  reader_.advance();
  expected_slots_ = 1;
  if (mark.kind == SlotKind::in_slots || mark.kind == SlotKind::headed_in_slots) {
    if (receive_in_slots(mark.kind == SlotKind::headed_in_slots, message)) return true;
  } else if (mark.kind == SlotKind::headed) {
    uint32_t offset;
    std::memcpy(&offset, slot.payload, sizeof offset);
    if (receive_data(offset, mark.length, MessageKind::headed, message)) return true;
  } else if (mark.kind == SlotKind::local_data) {
    LocalDataDescriptor descriptor;
    std::memcpy(&descriptor, slot.payload, sizeof descriptor);
    if (receive_data(descriptor.offset, mark.length, MessageKind::message, message)) return true;
  } else if (mark.kind == SlotKind::put_done) {
    PutDoneDescriptor descriptor;
    std::memcpy(&descriptor, slot.payload, sizeof descriptor);
    if (checked(descriptor.region_offset <= own_region_bytes_ && mark.length <= own_region_bytes_ - descriptor.region_offset)) {
      message.data = nullptr;
      message.kind = MessageKind::put_done;
      message.region_offset = descriptor.region_offset;
      count_received(0);
      return true;
    }
  }
  ++received_.bad_descriptor;
  release(message);
  return false;
}

// Copies the message out of its slots, so that it lies in one piece. Its last slot stands for it until its release, and the others are
// released now.
bool LocalChannel::receive_in_slots(bool headed, Message& message) noexcept {
  const uint32_t before = headed ? sizeof(HeadedDescriptor) : 0;
  if (!checked(message.length <= kInSlotsMax - before && (headed || message.length > kInlineMax))) return false;
  const uint32_t slots = slots_of(before + message.length);
  const uint32_t first = message.position, last = first + slots - 1;
  for (uint32_t at = last; at != first; --at) {
    Mark other;
    if (reader_.peek_at(at, other) == nullptr) return false;  // the first slot is written last
  }
  // Not cleared: only the memory of slots that end a message is touched.
  if (assembled_ == nullptr) assembled_.reset(new (std::nothrow) InSlots[reader_.depth()]);
  if (assembled_ == nullptr) return false;
  std::byte* const to = assembled_[last & (reader_.depth() - 1)].bytes.data();
  for (uint32_t i = 0; i != slots; ++i) std::memcpy(to + i * kSlotBytes, reader_.slot_at(first + i).payload, kSlotBytes);
  reader_.advance(slots - 1);
  for (uint32_t at = first; at != last; ++at) release_at(at);
  message.position = last;
  message.data = to + before;
  message.kind = headed ? MessageKind::headed : MessageKind::message;
  expected_slots_ = slots;
  count_received(message.length);
  return true;
}

bool LocalChannel::receive_data(uint64_t offset, uint32_t length, MessageKind kind, Message& message) noexcept {
  if (!checked(length <= kMessageMax && offset < data_bytes_ && length <= data_bytes_ - offset)) return false;
  message.data = in_data_ + offset;
  __builtin_prefetch(message.data);  // the data arrives while the caller looks at the message
  message.kind = kind;
  count_received(length);
  return true;
}

void LocalChannel::release_out_of_order(uint32_t position) noexcept {
  const uint32_t mask = reader_.depth() - 1;
  // Only positions that were received and not yet released count. Releasing twice does nothing.
  if (position - released_ >= reader_.position() - released_ || released_early_[position & mask]) return;
  if (position != released_) {
    released_early_[position & mask] = true;
    ++out_of_order_;
    return;
  }
  ++released_;
  while (released_early_[released_ & mask]) {
    released_early_[released_ & mask] = false;
    --out_of_order_;
    ++released_;
  }
  if (reader_.gives_back(released_)) give_back_now();
}

// The peer may have filled the counter or closed its end; both harm only the peer. One of several senders' messages pays: the first that
// finds the flag set clears it.
bool LocalChannel::PeerWake::wake(std::atomic<uint32_t>& announced, std::atomic<uint32_t>& seldom, int eventfd) noexcept {
  if (not_before_ != 0 && monotonic_now() < not_before_) [[unlikely]] return false;
  if (announced.exchange(0, std::memory_order_relaxed) == 0) return false;
  const Nanoseconds took = wake_.wake(eventfd);
  const bool told = long_ones_ >= kFew;  // state before this wake-up: its next sleep is short
  if (took >= kLong) [[unlikely]] {
    const Nanoseconds now = monotonic_now();
    long_ones_ = now - last_long_ < kForget ? long_ones_ + 1 : 1;
    last_long_ = now;
    if (told) not_before_ = now + kRest * took;
  } else if (long_ones_ != 0 && monotonic_now() - last_long_ >= kForget) [[unlikely]] {
    long_ones_ = 0;
  }
  if (told != (long_ones_ >= kFew)) [[unlikely]] seldom.store(told ? 0 : 1, std::memory_order_relaxed);
  return true;
}

// A receiver that is awake for this many messages does not sleep often, so its request for fences is cancelled. The receiver learns of that
// by its own exchange, unless it sees the message.
void LocalChannel::fence_for_receiver() noexcept {
  constexpr uint32_t kMost = 256;
  if (++fenced_sends_ >= kMost) {
    fenced_sends_ = 0;
    out_->receiver_asleep.fenced.exchange(0, std::memory_order_acq_rel);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void LocalChannel::wake_receiver() noexcept {
  fenced_sends_ = 0;
  if (wake_receiver_.wake(out_->receiver_asleep.value, out_->seldom.value, wake_.get())) ++sent_.wakeups;
}

void LocalChannel::wake_sender() noexcept {
  if (wake_sender_.wake(in_->sender_waiting.value, in_->seldom.value, wake_.get())) ++received_.wakeups;
}

bool LocalChannel::announce_sleep(bool for_room, bool often) noexcept {
  flush_credits();
  if (for_room) out_->sender_waiting.value.store(1, std::memory_order_relaxed);
  return announce(in_->receiver_asleep, often) && !for_room;
}

void LocalChannel::end_sleep() noexcept {
  in_->receiver_asleep.value.store(0, std::memory_order_relaxed);
  out_->sender_waiting.value.store(0, std::memory_order_relaxed);
}

}  // namespace unet
