// wire_link.cc - storing, sending, receiving and holding the packets of a flow.
#include "am/wire_link.h"

#include <cstring>
#include <utility>

#include "unet/base/bytes.h"
#include "unet/base/check.h"

namespace unet::am {

WireLink::WireLink(unet::Endpoint& endpoint, Channel channel, const FlowOptions& options, BufferPool& pool, HoldBudget& budget)
    : endpoint_(endpoint), channel_(channel), pool_(pool), budget_(budget), flow_(options) {}

WireLink::~WireLink() {
  for (Kept& each : kept_) {
    if (each.buffer != nullptr) pool_.give(each.buffer, each.taken);
  }
  if (composing_ != nullptr) pool_.give(composing_, composing_taken_);
  for (Held& each : held_) {
    if (each.buffer != nullptr) let_go(each);
  }
  if (in_place_) endpoint_.release(*in_place_);
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
  copy_bytes(buffer + head, payload.data(), payload.size());
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
  if (transmit.numbered) {
    const Kept& each = kept(transmit.fields.sequence);
    refresh_head(each.buffer, transmit.fields, each.flags);
    return endpoint_.send(channel_, {each.buffer, each.length});
  }
  std::array<std::byte, sizeof(PacketHeader) + sizeof(AckBody)> message;
  uint32_t length = emit_header(message.data(), transmit.fields);
  if (has_payload(transmit.fields.kind)) {
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

void WireLink::let_go(Held& held) noexcept {
  budget_.left += held.length;
  pool_.give(held.buffer, held.length);
  held.buffer = nullptr;
}

void WireLink::receive(const Message& message, Nanoseconds now, Nanoseconds absence) {
  Bytes payload;
  if (message.kind != MessageKind::message || message.length > BufferPool::kSizes.back() ||
      parse_packet(message.bytes(), fields_, payload) != PacketError::none) {
    ++counters_.malformed;
    endpoint_.release(message);
    return;
  }
  const bool keep = message.length <= budget_.left;
  if (flow_.handle_packet(fields_, payload, keep, now, absence) != Flow::Arrival::fresh) {
    endpoint_.release(message);
    return;
  }
  if (flow_.is_next(fields_.sequence)) {
    in_place_ = message;
    in_place_payload_ = payload;
    given_ = false;
    return;
  }
  Held& held = held_[slot_of(fields_.sequence)];
  held = {.buffer = pool_.take(message.length), .length = message.length};
  copy_bytes(held.buffer, message.data, message.length);
  budget_.left -= message.length;
  endpoint_.release(message);
}

const PacketFields* WireLink::next(Bytes& payload) noexcept {
  if (current_ != nullptr) let_go(*std::exchange(current_, nullptr));
  if (in_place_ && given_) {
    endpoint_.release(*in_place_);
    in_place_.reset();
  }
  free_released();  // the next request needs a free slot for its reply
  const std::optional<Sequence> sequence = flow_.poll_delivery();
  if (!sequence) return nullptr;
  Held& held = held_[slot_of(*sequence)];
  if (held.buffer != nullptr) {
    current_ = &held;
    // Cannot fail: the buffer is ours, and receive() has parsed the same bytes.
    UNET_CHECK(parse_packet({held.buffer, held.length}, fields_, payload) == PacketError::none);
  } else {
    given_ = true;
    payload = in_place_payload_;
  }
  return &fields_;
}

}  // namespace unet::am
