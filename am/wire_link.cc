// wire_link.cc - keeping, sending, receiving and holding the packets of a flow.
#include "am/wire_link.h"

#include <cstring>

#include "unet/base/check.h"

namespace unet::am {

WireLink::WireLink(unet::Endpoint& endpoint, Channel channel, const FlowOptions& options, BufferPool& pool, HoldBudget& budget)
    : endpoint_(endpoint), channel_(channel), pool_(pool), budget_(budget), flow_(options) {}

WireLink::~WireLink() {
  for (Kept& each : kept_) {
    if (each.buffer != nullptr) pool_.give(each.buffer, each.taken);
  }
  if (composing_ != nullptr) pool_.give(composing_, composing_taken_);
  for (Message& each : held_) {
    if (each.data != nullptr) release(each);
  }
}

// ---- sending

uint32_t WireLink::head_size(const PacketFields& fields) noexcept {
  uint32_t size = sizeof(PacketHeader) + uint32_t{4} * fields.count;
  if ((fields.flags & PacketFlags::kTag) != 0) size += sizeof(be64);
  if (has_long_header(fields.kind)) size += sizeof(LongHeader);
  return size;
}

void WireLink::keep(PacketFields& fields, std::byte* buffer, uint32_t taken, uint32_t length) noexcept {
  fields.session = flow_.session();
  fields.sequence = flow_.begin(is_request(fields.kind), length);
  emit_head(buffer, fields);
  kept(fields.sequence) = {.buffer = buffer, .length = length, .taken = taken, .flags = fields.flags};
}

void WireLink::begin(PacketFields& fields, Bytes payload) {
  const uint32_t head = head_size(fields);
  const auto length = static_cast<uint32_t>(head + payload.size());
  std::byte* const buffer = pool_.take(length);
  if (!payload.empty()) std::memcpy(buffer + head, payload.data(), payload.size());
  keep(fields, buffer, length, length);
}

MutableBytes WireLink::reserve(const PacketFields& fields, uint32_t length) {
  if (composing_ != nullptr) pool_.give(composing_, composing_taken_);
  const uint32_t head = head_size(fields);
  composing_taken_ = head + length;
  composing_ = pool_.take(composing_taken_);
  return {composing_ + head, length};
}

void WireLink::commit(PacketFields& fields, uint32_t length) {
  keep(fields, composing_, composing_taken_, head_size(fields) + length);
  composing_ = nullptr;
}

void WireLink::free_released() noexcept {
  while (const std::optional<Sequence> sequence = flow_.poll_released()) {
    Kept& each = kept(*sequence);
    pool_.give(each.buffer, each.taken);
    each.buffer = nullptr;
  }
}

SendOutcome WireLink::transmit(const Flow::Transmit& transmit) noexcept {
  PacketFields fields = transmit.fields;
  if (transmit.numbered) {
    const Kept& each = kept(fields.sequence);
    fields.flags = static_cast<uint8_t>(fields.flags | each.flags);
    refresh_head(each.buffer, fields);
    return endpoint_.send(channel_, {each.buffer, each.length});
  }
  std::array<std::byte, kHeadMax + sizeof(AckBody)> message;
  uint32_t length = emit_head(message.data(), fields);
  if (has_payload(fields.kind)) {
    std::memcpy(message.data() + length, &transmit.arrived, sizeof transmit.arrived);
    length += sizeof transmit.arrived;
  }
  return endpoint_.send(channel_, {message.data(), length});
}

bool WireLink::pump(Nanoseconds now) noexcept {
  free_released();
  while (const std::optional<Flow::Transmit> next = flow_.poll_transmit(now)) {
    const SendOutcome outcome = transmit(*next);
    if (outcome == SendOutcome::sent) continue;
    flow_.unsent(*next);
    return outcome != SendOutcome::full;
  }
  return true;
}

// ---- receiving

void WireLink::release(const Message& message) noexcept {
  budget_.left += message.length;
  endpoint_.release(message);
}

void WireLink::receive(const Message& message, Nanoseconds now, Nanoseconds absence) noexcept {
  PacketFields fields;
  Bytes payload;
  if (message.kind != MessageKind::message || parse_packet(message.bytes(), fields, payload) != PacketError::none) {
    ++counters_.malformed;
    endpoint_.release(message);
    return;
  }
  const bool keep = int64_t{message.length} <= budget_.left;
  const uint64_t early = flow_.counters().out_of_order;
  const Flow::Arrival arrival = flow_.handle_packet(fields, payload, keep, now, absence);
  if (arrival != Flow::Arrival::fresh) {
    if (!keep && flow_.counters().out_of_order != early) ++counters_.not_kept;
    endpoint_.release(message);
    return;
  }
  budget_.left -= message.length;
  held_[slot_of(fields.sequence)] = message;
}

bool WireLink::next(PacketFields& fields, Bytes& payload) noexcept {
  if (current_ != nullptr) {
    release(*current_);
    held_[static_cast<size_t>(current_ - held_.data())].data = nullptr;
    current_ = nullptr;
  }
  free_released();  // the place of an answer may wait for it
  const std::optional<Sequence> sequence = flow_.poll_delivery();
  if (!sequence) return false;
  current_ = &held_[slot_of(*sequence)];
  // Only the NI writes where it lies: what was a packet when it came is one now.
  UNET_CHECK(parse_packet(current_->bytes(), fields, payload) == PacketError::none);
  return true;
}

}  // namespace unet::am
