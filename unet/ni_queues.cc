// ni_queues.cc - messages longer than a slot, release out of order, doorbells and sleeping.
#include "unet/ni_queues.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "unet/base/bytes.h"
#include "unet/base/check.h"

namespace unet {

void Doorbells::ring(Doorbell bell) noexcept {
  ClientPage* const client = page();
  const uint32_t bit = bell.bit, word = bit / 64;
  // release: the slot is published before the bit that makes the engine read it.
  client->doorbells[word].fetch_or(uint64_t{1} << (bit % 64), std::memory_order_release);
  client->summary.words[word / 64].fetch_or(uint64_t{1} << (word % 64), std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // an engine that watches no queue sleeps without a heavy_fence()
  if ((client->engine_asleep.value.load(std::memory_order_relaxed) >> bell.engine & 1) != 0) {
    const uint64_t one = 1;
    static_cast<void>(!::write(engine_wake_.get(), &one, sizeof one));
  }
}

NiQueues::NiQueues(Mapping segment, const SegmentGeometry& g, Doorbells& doorbells, uint32_t doorbell)
    : doorbells_(&doorbells), doorbell_(doorbell), geometry_(g), segment_(std::move(segment)) {
  std::byte* base = segment_.data();
  header_ = reinterpret_cast<SegmentHeader*>(base);
  writer_ = SlotWriter(reinterpret_cast<Slot*>(base + g.send_queue), g.send_depth, &header_->send_consumed.value);
  ring_ = DataRing(g.send_bytes, g.send_depth);
  reader_ = SlotReader(reinterpret_cast<Slot*>(base + g.receive_queue), g.receive_depth, &header_->receive_consumed.value);
  free_ = FreeWriter(reinterpret_cast<FreeSlot*>(base + g.free_queue), g.free_depth);
  mask_ = g.receive_depth - 1;
  released_early_.resize(g.receive_depth);
  scratch_.resize(g.receive_depth);
  for (uint32_t buffer = 0; buffer < g.buffers; ++buffer) free_.push(buffer);
}

// ---- sending

void NiQueues::ring_doorbell() noexcept {
  if (doorbell_ != Doorbell::kNone) return doorbells_->ring({.bit = doorbell_});
  const uint32_t word = header_->doorbell.value.load(std::memory_order_acquire);
  if (word != Doorbell::kNone) doorbells_->ring(Doorbell::unpack(word));  // else the engine checks when it gets the endpoint
}

SendOutcome NiQueues::send_long(Channel channel, const std::byte* data, uint32_t length) noexcept {
  if (!may_hold(length)) return SendOutcome::too_long;
  const MutableBytes room = reserve(length);
  if (room.empty()) return SendOutcome::full;
  copy_bytes(room.data(), data, length);
  return post(channel, length);
}

bool NiQueues::reserve_data(uint32_t length) noexcept {
  ring_.credit(writer_.credited());
  reserved_offset_ = ring_.reserve(length);
  if (reserved_offset_ == DataRing::kNone) {
    writer_.refresh();
    ring_.credit(writer_.credited());
    reserved_offset_ = ring_.reserve(length);
  }
  return reserved_offset_ != DataRing::kNone;
}

MutableBytes NiQueues::reserve(uint32_t length) noexcept {
  reserved_length_ = refused_length_ = 0;
  const uint32_t size = length == 0 ? 1 : length;
  if (may_hold(length) && writer_.reserve() != nullptr) {
    if (reserve_data(size)) {
      reserved_length_ = size;
      return {segment_.data() + geometry_.send_data + reserved_offset_, size};
    }
    refused_length_ = size;
  }
  refused_until_ = 0;
  return {};
}

SendOutcome NiQueues::post(Channel channel, uint32_t length) noexcept {
  if (length > reserved_length_ || reserved_length_ == 0) return SendOutcome::too_long;
  Slot* slot = writer_.reserve();
  if (slot == nullptr) return SendOutcome::full;
  publish_reserved(slot, channel, length, SlotKind::gather, GatherDescriptor{});
  return SendOutcome::sent;
}

MutableBytes NiQueues::register_send_memory(uint64_t bytes) noexcept {
  const uint64_t kept = round_up(bytes, kPage);
  if (writer_.written() != 0 || kept > ring_.bytes() || ring_.bytes() - kept < kIpMessageMax) return {};
  ring_ = DataRing(ring_.bytes() - kept, geometry_.send_depth);
  return {segment_.data() + geometry_.send_data + ring_.bytes(), static_cast<size_t>(kept)};
}

SendOutcome NiQueues::post(Channel channel, uint32_t length, std::span<const Bytes> pieces) noexcept {
  if (length > reserved_length_ || length == 0 || pieces.size() > kSendPiecesMax) return SendOutcome::too_long;
  Slot* slot = writer_.reserve();
  if (slot == nullptr) return SendOutcome::full;
  GatherDescriptor descriptor{};
  uint32_t total = length;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::byte* const first = segment_.data() + geometry_.send_data;
    UNET_CHECK(pieces[i].data() >= first && pieces[i].data() + pieces[i].size() <= first + geometry_.send_bytes);
    descriptor.fragments[i + 1] = {static_cast<uint32_t>(pieces[i].data() - segment_.data()), static_cast<uint32_t>(pieces[i].size())};
    total += static_cast<uint32_t>(pieces[i].size());
  }
  if (total > kMessageMax) return SendOutcome::too_long;
  descriptor.fragments[0] = {static_cast<uint32_t>(geometry_.send_data + reserved_offset_), length};
  std::memcpy(slot->payload, &descriptor, sizeof descriptor);
  // Takes as many bytes as if all pieces were in the ring: this bounds the queued bytes, wherever they lie.
  ring_.commit(reserved_offset_, std::min(reserved_length_, total), writer_.written());
  reserved_length_ = 0;
  publish(slot, channel, total, SlotKind::gather);
  return SendOutcome::sent;
}

// Sends the first `length` bytes of the reservation, by a descriptor.
template <typename Fields>
void NiQueues::publish_reserved(Slot* slot, Channel channel, uint32_t length, SlotKind kind, Fields descriptor) noexcept {
  descriptor.fragments[0] = {static_cast<uint32_t>(geometry_.send_data + reserved_offset_), length};
  std::memcpy(slot->payload, &descriptor, sizeof descriptor);
  ring_.commit(reserved_offset_, std::max(length, 1u), writer_.written());
  reserved_length_ = 0;
  publish(slot, channel, length, kind);
}

bool NiQueues::has_room() noexcept {
  if (!writer_.refresh()) return false;
  if (writer_.credited() < refused_until_) return false;
  if (refused_length_ == 0) return true;
  ring_.credit(writer_.credited());
  return ring_.reserve(refused_length_) != DataRing::kNone;
}

SendOutcome NiQueues::put(Channel channel, uint64_t region_offset, Bytes data, bool notify) noexcept {
  if (data.size() > kMessageMax) return SendOutcome::too_long;
  const auto length = static_cast<uint32_t>(data.size());
  const MutableBytes room = reserve(length);
  if (room.empty()) return SendOutcome::full;
  copy_bytes(room.data(), data.data(), length);
  const PutDescriptor descriptor{.region_offset = region_offset, .notify = notify ? 1u : 0u};
  publish_reserved(writer_.reserve(), channel, length, SlotKind::put, descriptor);
  return SendOutcome::sent;
}

// ---- receiving

namespace {

// Reads one run of a RunsDescriptor. A single load need not wait for the NI's stores to the other runs.
Run run_at(const Slot& slot, uint32_t index) noexcept {
  Run run;
  std::memcpy(&run, slot.payload + index * sizeof run, sizeof run);
  return run;
}

}  // namespace

void NiQueues::receive_long(const Slot& slot, Mark mark, Message& message) noexcept {
  if (mark.kind == SlotKind::put_done) {
    PutDoneDescriptor descriptor;
    std::memcpy(&descriptor, slot.payload, sizeof descriptor);
    message.kind = MessageKind::put_done;
    message.data = nullptr;
    message.region_offset = descriptor.region_offset;
    return;
  }
  UNET_CHECK(mark.kind == SlotKind::runs);
  receive_runs(slot, message);
}

void NiQueues::receive_runs(const Slot& slot, Message& message) noexcept {
  const std::byte* const area = segment_.data() + geometry_.receive_data;
  const uint64_t buffer_size = geometry_.buffer_size;
  const Run first = run_at(slot, 0);
  if (__builtin_expect(first.count * buffer_size >= message.length, 1)) {
    message.data = area + first.first * buffer_size;
    return;
  }

  ++gathered_;
  auto& scratch = scratch_[message.position & mask_];
  if (scratch == nullptr) scratch = std::make_unique<std::byte[]>(kIpMessageMax);
  uint32_t done = 0;
  for (uint32_t i = 0; i < kRunsMax && done != message.length; ++i) {
    const Run run = run_at(slot, i);
    if (run.count == 0) break;
    const auto part = static_cast<uint32_t>(std::min<uint64_t>(run.count * buffer_size, message.length - done));
    copy_bytes(scratch.get() + done, area + run.first * buffer_size, part);
    done += part;
  }
  message.data = scratch.get();
}

void NiQueues::release_long(uint32_t position) noexcept {
  if (position - released_ >= reader_.position() - released_ || released_early_[position & mask_]) return;
  released_early_[position & mask_] = true;
  ++out_of_order_;
  while (out_of_order_ != 0 && released_early_[released_ & mask_]) {
    released_early_[released_ & mask_] = false;
    --out_of_order_;
    if (lies_in_buffers(released_)) free_buffers_of(released_);
    ++released_;
  }
  static_cast<void>(reader_.give_back(released_));
}

// Gives the buffers of the message in this slot back to the NI.
void NiQueues::free_buffers_of(uint32_t position) noexcept {
  for (uint32_t i = 0; i < kRunsMax; ++i) {
    const Run run = run_at(reader_.slot_at(position), i);
    if (run.count == 0) return;
    for (uint32_t buffer = run.first; buffer < uint32_t{run.first} + run.count; ++buffer) free_.push(buffer);
  }
}

// ---- sleeping

bool NiQueues::announce_sleep(bool for_room, bool often) noexcept {
  flush_credits();
  if (for_room) header_->sender_waiting.value.store(1, std::memory_order_relaxed);
  return announce(header_->receiver_asleep, often) && !for_room;
}

void NiQueues::end_sleep() noexcept {
  header_->receiver_asleep.value.store(0, std::memory_order_relaxed);
  header_->sender_waiting.value.store(0, std::memory_order_relaxed);
}

}  // namespace unet
