// port_moves.cc - moves of message ports: offers of receive rights, claims, and the way of a queue to its new home.
#include <algorithm>
#include <utility>

#include "am/rpc/port/port_router.h"

namespace unet::rpc {

// ---- offers

// Returns a right that stands for the receive right in a message. The caller has checked that there is room.
uint32_t PortRouter::offer(uint32_t number) {
  Port& port = *ports_.find(number);
  port.state = PortState::offered;
  port.ticket = random_key();
  const uint32_t right = add_right({.receive = true, .address = {.space = name_, .number = number, .key = port.ticket}});
  begin_attach(right, *rights_.find(right));
  return right;
}

// Makes the message port of a receive right that a program has received. Returns 0 if ports_max is reached.
uint32_t PortRouter::claim(uint32_t number) {
  Right& right = *rights_.find(number);
  Port* const here = right.peer == kSelf && right.state == RightState::attached ? ports_.find(right.address.number) : nullptr;
  if (here != nullptr && here->state == PortState::offered) {
    const uint32_t port = right.address.number;
    here->state = PortState::here;
    refuse_offers(*here, right.attachment);
    disown(number);
    check_senders(port);
    return port;
  }
  if (ports_.size() >= options_.ports_max) {
    disown(number);
    return 0;
  }
  const uint32_t made = ports_.insert({.state = PortState::arriving, .has_key = false, .limit = options_.queue_limit});
  if (made == 0) return disown(number), 0;
  Port& port = *ports_.find(made);
  if (right.state == RightState::dead) {
    port.state = PortState::lost;
    port.error = right.error;
    disown(number);
    return made;
  }
  port.claim = number;
  right.port = made;
  if (right.state == RightState::attached) send_claim(right);
  return made;
}

void PortRouter::send_claim(Right& right) {
  emit(right.peer, {.kind = RecordKind::claim, .to = right.attachment, .number = right.port, .name = name_});
}

// ---- the former home

void PortRouter::on_claim(PeerId from, const Record& record) {
  const Attachment* const attachment = attachments_.find(record.to);
  if (attachment == nullptr) return;  // the message port died meanwhile, or another claim was first; the peer has been told
  if (attachment->peer != from || !attachment->receive || ports_.find(attachment->port)->state != PortState::offered) {
    ++counters_.bad_records;
    return;
  }
  const uint32_t number = attachment->port;
  Port& port = *ports_.find(number);
  const std::string space = absolute(record.name, from);
  if (space.empty()) {  // no sender could reach it there
    ++counters_.bad_records;
    emit(from, {.kind = RecordKind::refused, .error = PortError::unreachable, .to = attachment->right, .from = record.to});
    return remove_attachment(record.to);
  }
  port.state = PortState::leaving;
  port.claimer = record.to;
  port.forward = {.space = space, .number = record.number, .key = port.key};
  for (const uint32_t each : port.attachments) drop_arriving(*attachments_.find(each), port);
  refuse_offers(port, record.to);
  try_leave(number);
}

// Ends what spaces know of earlier offers, so that each offer is good for one claim.
void PortRouter::refuse_offers(Port& port, uint32_t except) {
  for (const uint32_t each : std::vector<uint32_t>(port.attachments)) {
    const Attachment& attachment = *attachments_.find(each);
    if (!attachment.receive || each == except) continue;
    emit(attachment.peer, {.kind = RecordKind::refused, .error = PortError::bad_right, .to = attachment.right, .from = each});
    remove_attachment(each);
  }
}

// Sends the queue when all rights in it are attached here, so that these do not depend on the processes that sent them.
void PortRouter::try_leave(uint32_t number) {
  Port* const port = ports_.find(number);
  if (port == nullptr || port->state != PortState::leaving || port->transfer != 0) return;
  const bool ready = std::all_of(port->queue.begin(), port->queue.end(), [&](const Parcel& each) { return are_settled(each); });
  const Attachment& claimer = *attachments_.find(port->claimer);
  const uint32_t transfer = ready ? add_right({.transfer = true, .port = number, .address = port->forward}) : 0;
  if (transfer == 0) return leaving_.push_back(number);
  emit(claimer.peer, {.kind = RecordKind::state, .flags = port->is_armed ? RecordFlags::kArmed : uint8_t{0}, .to = claimer.right,
                      .number = port->limit, .key = port->key});
  for (const uint32_t each : port->attachments) {
    const Attachment& attachment = *attachments_.find(each);
    if (attachment.receive || attachment.transfer) continue;
    emit(claimer.peer, {.kind = RecordKind::sender, .to = claimer.right, .sequence = attachment.expected, .stream = attachment.stream});
  }
  Right& right = *rights_.find(transfer);
  right.messages = std::exchange(port->queue, {});
  for (Parcel& each : right.messages) {
    memory_ -= each.bytes.size();
    if (each.event != PortEvent::message) {
      const Bytes cookie = as_bytes(&each.cookie, sizeof each.cookie);
      each.bytes.assign(cookie.begin(), cookie.end());
    }
  }
  port->transfer = transfer;
  port->occupied = 0;
  right.peer = claimer.peer;  // not by its name: that may lead elsewhere
  right.state = RightState::attaching;
  emit(right.peer, {.kind = RecordKind::attach, .flags = RecordFlags::kFirst | RecordFlags::kTransfer, .to = port->forward.number,
                    .from = transfer, .stream = right.stream, .key = port->key});
  wake_starved();
}

// The new home has the queue. Its senders may come there now.
void PortRouter::finish_leaving(uint32_t number) {
  Port* const port = ports_.find(number);
  if (port == nullptr || port->state != PortState::leaving) return;
  const Attachment& claimer = *attachments_.find(port->claimer);
  emit(claimer.peer, {.kind = RecordKind::opened, .to = claimer.right});
  port->state = PortState::moved;
  ++counters_.moved_out;
  for (const uint32_t each : port->attachments) {
    const Attachment& attachment = *attachments_.find(each);
    if (attachment.receive || attachment.transfer) continue;
    emit(attachment.peer, {.kind = RecordKind::moved, .to = attachment.right, .from = each, .number = port->forward.number,
                           .name = port->forward.space});
  }
  const uint32_t transfer = std::exchange(port->transfer, 0);
  rights_.find(transfer)->port = 0;
  disown(transfer);
  check_end(number);
}

// ---- the new home

// Returns the message port that the sender of the record is to send us; nullptr: there is none.
PortRouter::Port* PortRouter::arriving_port(PeerId from, const Record& record) {
  const Right* const right = rights_.find(record.to);
  Port* const port = right != nullptr && right->receive && right->peer == from ? ports_.find(right->port) : nullptr;
  if (port != nullptr && port->state == PortState::arriving) return port;
  if (right != nullptr) ++counters_.bad_records;  // else our program has destroyed the receive right meanwhile
  return nullptr;
}

void PortRouter::on_state(PeerId from, const Record& record) {
  Port* const port = arriving_port(from, record);
  if (port == nullptr || port->has_key) return;
  port->has_key = true;
  port->is_armed = port->is_armed || (record.flags & RecordFlags::kArmed) != 0;
  port->key = record.key;
  port->limit = std::clamp(record.number, 1u, options_.queue_limit);
  for (const uint32_t each : std::exchange(port->unborn, {})) {
    Right* const right = rights_.find(each);
    if (right == nullptr) continue;
    right->address.key = record.key;
    begin_attach(each, *right);
  }
}

void PortRouter::on_sender(PeerId from, const Record& record) {
  Port* const port = arriving_port(from, record);
  if (port == nullptr || !port->has_key || port->attachments.size() >= options_.senders_max) return;
  const uint32_t where = rights_.find(record.to)->port;
  const uint32_t made = attachments_.insert({.port = where, .stream = record.stream, .expected = record.sequence});
  if (made == 0) return;
  port->attachments.push_back(made);
  ++port->senders;
}

void PortRouter::on_opened(PeerId from, const Record& record) {
  Port* const port = arriving_port(from, record);
  if (port == nullptr || !port->has_key) return;
  port->state = PortState::here;
  ++counters_.moved_in;
  remove_attachment(port->feeder);
  wake(*port);
  check_senders(rights_.find(record.to)->port);
}

void PortRouter::on_sender_gone(PeerId from, const Record& record) {
  const Right* const right = rights_.find(record.to);
  const Port* const port = right != nullptr && right->receive && right->peer == from ? ports_.find(right->port) : nullptr;
  if (port == nullptr) return;
  for (const uint32_t each : port->attachments) {
    const Attachment& attachment = *attachments_.find(each);
    if (attachment.peer == kNoPeer && attachment.stream == record.stream) return remove_attachment(each);
  }
}

// The former home has ended its part, or was lost. If it was lost, senders that were to come from there may be lost, too.
void PortRouter::end_claim(uint32_t number, PortError error) {
  Port* const port = ports_.find(number);
  if (port == nullptr) return;
  port->claim = 0;
  if (port->state == PortState::arriving) {
    port->state = PortState::lost;
    port->error = error;
    end_senders(*port);
    for (const uint32_t each : std::exchange(port->unborn, {})) die(each, error);
    return;
  }
  for (const uint32_t each : port->attachments) {
    Attachment& attachment = *attachments_.find(each);
    if (attachment.peer != kNoPeer || attachment.deadline != kNever) continue;
    attachment.deadline = now_ + options_.grace;
  }
  check_end(number);
}

}  // namespace unet::rpc
