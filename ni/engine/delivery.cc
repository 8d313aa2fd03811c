// delivery.cc - long messages, puts, and the end of a batch.
#include "ni/engine/delivery.h"

#include <algorithm>
#include <cstring>

#include "unet/base/bytes.h"
#include "unet/base/fence.h"

namespace unet::engine {
namespace {

// Copies the next `length` bytes of a message that lies in pieces.
class PieceReader {
 public:
  explicit PieceReader(std::span<const Bytes> from) noexcept : from_(from) {}

  void copy(std::byte* to, uint64_t length) noexcept {
    while (length != 0) {
      const Bytes piece = from_[piece_];
      const uint64_t part = std::min<uint64_t>(length, piece.size() - offset_);
      copy_bytes(to, piece.data() + offset_, part);
      to += part;
      length -= part;
      offset_ += part;
      if (offset_ == piece.size()) {
        ++piece_;
        offset_ = 0;
      }
    }
  }

 private:
  const std::span<const Bytes> from_;
  uint32_t piece_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace

bool Delivery::drop(EndpointState& to, EndpointCounter reason) noexcept {
  to.count(reason);
  return false;
}

bool Delivery::message(EndpointState& to, uint32_t channel, std::span<const Bytes> pieces, uint32_t length) noexcept {
  Slot* const slot = to.receive.reserve();
  if (slot == nullptr) return drop(to, EndpointCounter::receive_queue_full);
  PieceReader reader(pieces);
  if (length <= kInlineMax) {
    reader.copy(slot->payload, length);
    to.receive_checkpoint->announce(to.receive.position() + 1);
    publish(to, slot, channel, length, SlotKind::inline_data);
    return true;
  }
  RunList runs;
  if (!take_buffers(to, length, runs)) return false;
  if (pieces.size() == 1 && runs.count == 1) [[likely]] {
    copy_bytes(to.receive_data + uint64_t{runs.runs[0].first} * to.buffer_size, pieces[0].data(), length);
    return runs_message(to, channel, runs, length);
  }
  uint64_t left = length;
  for (uint32_t i = 0; i < runs.count; ++i) {
    const uint64_t part = std::min<uint64_t>(left, uint64_t{runs.runs[i].count} * to.buffer_size);
    reader.copy(to.receive_data + uint64_t{runs.runs[i].first} * to.buffer_size, part);
    left -= part;
  }
  return runs_message(to, channel, runs, length);
}

bool Delivery::take_buffers(EndpointState& to, uint32_t length, RunList& runs) noexcept {
  const uint32_t count = length <= to.buffer_size ? 1 : (length + to.buffer_size - 1) / to.buffer_size;
  if (count > to.buffers.buffers()) return drop(to, EndpointCounter::too_long);
  uint32_t lies = 0;
  runs.count = 0;
  BufferPool::Outcome outcome = to.buffers.take(count, runs, lies);
  while (outcome == BufferPool::Outcome::none && lies == 0 && reassembly_.reclaim(to)) outcome = to.buffers.take(count, runs, lies);
  if (lies != 0) [[unlikely]] to.count(EndpointCounter::bad_free_descriptor, lies);
  if (outcome == BufferPool::Outcome::taken) [[likely]] return true;
  return drop(to, outcome == BufferPool::Outcome::none ? EndpointCounter::no_free_buffer : EndpointCounter::too_fragmented);
}

bool Delivery::runs_message(EndpointState& to, uint32_t channel, const RunList& runs, uint32_t length) noexcept {
  Slot* const slot = to.receive.reserve();
  if (slot == nullptr) {
    to.buffers.give_back(runs);
    return drop(to, EndpointCounter::receive_queue_full);
  }
  constexpr Run kEnd{};
  for (uint32_t i = 0; i < runs.count; ++i) std::memcpy(slot->payload + i * sizeof(Run), &runs.runs[i], sizeof(Run));
  if (runs.count != kRunsMax) std::memcpy(slot->payload + runs.count * sizeof(Run), &kEnd, sizeof kEnd);
  to.receive_checkpoint->announce(to.receive.position() + 1, runs.runs, runs.count, to.buffers.held());
  publish(to, slot, channel, length, SlotKind::runs);
  return true;
}

// All of the put must lie inside, even if this is a fragment of it: region_offset comes from another host.
bool Delivery::check_region(EndpointState& to, uint64_t region_offset, uint32_t length) noexcept {
  const uint64_t size = to.region.size();
  if (size == 0) return drop(to, EndpointCounter::put_no_region);
  if (region_offset > size || length > size - region_offset) return drop(to, EndpointCounter::put_out_of_bounds);
  return true;
}

bool Delivery::put(EndpointState& to, uint32_t channel, uint64_t region_offset, const Pieces& from, bool notify) noexcept {
  if (!check_region(to, region_offset, from.length)) return false;
  if (notify && to.receive.reserve() == nullptr) return drop(to, EndpointCounter::receive_queue_full);
  PieceReader(std::span(from.pieces).first(from.count)).copy(to.region.data() + region_offset, from.length);
  if (notify) return put_done(to, channel, region_offset, from.length);
  put_counted(to, 1, from.length);
  return true;
}

bool Delivery::put_done(EndpointState& to, uint32_t channel, uint64_t region_offset, uint32_t length) noexcept {
  Slot* const slot = to.receive.reserve();
  if (slot == nullptr) return drop(to, EndpointCounter::receive_queue_full);
  const PutDoneDescriptor descriptor{.region_offset = region_offset, .length = length};
  std::memcpy(slot->payload, &descriptor, sizeof descriptor);
  to.receive_checkpoint->announce(to.receive.position() + 1);
  publish(to, slot, channel, length, SlotKind::put_done);
  return true;
}

void Delivery::flush_touched() noexcept {
  light_fence();  // between the publication of slots and the load of receiver_asleep
  for (uint32_t i = 0; i < touched_count_; ++i) {
    EndpointState& to = *touched_[i];
    to.touched = false;
    if (to.receive_header->receiver_asleep.fenced.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    waker_.wake_if_announced(to, to.receive_header->receiver_asleep.value);
    to.count(EndpointCounter::received_messages, to.received_messages);
    to.count(EndpointCounter::received_bytes, to.received_bytes);
    to.received_messages = 0;
    to.received_bytes = 0;
  }
  touched_count_ = 0;
}

}  // namespace unet::engine
