// port_home.cc - message ports that have their queue in this space, and the rights that are attached to them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "am/rpc/port/port_router.h"

namespace unet::rpc {
namespace {

constexpr uint32_t kAckEvery = 8;            // messages of one sender
constexpr uint32_t kReserve = 64 * 1024;     // bytes of a message that an empty queue takes without regard to PortOptions::memory

}  // namespace

// ---- calls of the program

uint32_t PortRouter::make_port() {
  if (ports_.size() >= options_.ports_max) return 0;
  return ports_.insert({.key = random_key(), .limit = options_.queue_limit});
}

void PortRouter::destroy_port(uint32_t port) {
  erase_port(port);
  drain();
}

std::optional<Delivery> PortRouter::receive(uint32_t number) {
  Port* const port = ports_.find(number);
  if (port == nullptr || port->queue.empty()) return std::nullopt;
  Parcel parcel = std::move(port->queue.front());
  port->queue.pop_front();
  if (parcel.event == PortEvent::message) {
    memory_ -= parcel.bytes.size();
    --port->occupied;
    wake(*port);
    wake_starved();
  }
  Delivery delivery{.event = parcel.event, .cookie = parcel.cookie, .bytes = std::move(parcel.bytes)};
  for (const SentRight& each : parcel.rights) {
    const Right* const right = rights_.find(each.right);
    const bool receive = right != nullptr && right->receive;
    delivery.rights.push_back({.number = receive ? claim(each.right) : each.right, .receive = receive});
  }
  drain();
  return delivery;
}

PortError PortRouter::error_of_port(uint32_t number) {
  const Port* const port = ports_.find(number);
  return port == nullptr ? PortError::no_room : port->error;
}

void PortRouter::notify_no_senders(uint32_t number) {
  Port* const port = ports_.find(number);
  if (port == nullptr) return;
  port->is_armed = true;
  check_senders(number);
}

void PortRouter::check_senders(uint32_t number) {
  Port& port = *ports_.find(number);
  if (port.state != PortState::here || !port.is_armed || port.senders != 0) return;
  port.is_armed = false;
  queue_event(number, PortEvent::no_more_senders, 0);
}

// Events do not count for the queue's limit: there is at most one for each request of the program.
void PortRouter::queue_event(uint32_t number, PortEvent event, uint64_t cookie) {
  Port* const port = ports_.find(number);
  const bool has_queue = port != nullptr && port->state != PortState::moved && port->transfer == 0;
  if (has_queue) port->queue.push_back({.event = event, .cookie = cookie});
}

// ---- attachments

// Returns the attachment of a sender that the former home has told of; nullptr: there is none.
PortRouter::Attachment* PortRouter::adopt(PeerId from, const Record& record, Port& port, uint32_t& number) {
  for (const uint32_t each : port.attachments) {
    Attachment& attachment = *attachments_.find(each);
    if (attachment.stream != record.stream || attachment.peer != kNoPeer) continue;
    attachment.peer = from;
    attachment.right = record.from;
    attachment.deadline = kNever;
    number = each;
    return &attachment;
  }
  return nullptr;
}

PortError PortRouter::check_attach(PeerId from, const Record& record, const Port* port) {
  if (port == nullptr || port->state == PortState::lost || !port->has_key) return PortError::dead_name;
  if ((record.flags & RecordFlags::kReceive) != 0) {
    return port->state == PortState::offered && port->ticket == record.key ? PortError::none : PortError::bad_right;
  }
  if (!(port->key == record.key)) return PortError::bad_right;
  if ((record.flags & RecordFlags::kTransfer) == 0) return PortError::none;
  const Right* const claimed_by = rights_.find(port->claim);
  return port->state == PortState::arriving && claimed_by != nullptr && claimed_by->peer == from ? PortError::none : PortError::bad_right;
}

void PortRouter::on_attach(PeerId from, const Record& record) {
  Port* const port = ports_.find(record.to);
  Peer& peer = peers_.find(from)->second;
  PortError error = check_attach(from, record, port);
  if (error == PortError::bad_right) ++counters_.refused;
  Attachment* attachment = nullptr;
  uint32_t number = 0;
  const bool known = (record.flags & RecordFlags::kFirst) == 0;
  if (error == PortError::none && known) {
    attachment = adopt(from, record, *port, number);
    if (attachment == nullptr) error = PortError::lost;
  } else if (error == PortError::none) {
    const bool full = port->attachments.size() >= options_.senders_max || (from != kSelf && peer.attachments >= options_.peer_rights_max);
    if (full) error = PortError::no_room;
  }
  if (error != PortError::none) return emit(from, {.kind = RecordKind::refused, .error = error, .to = record.from});
  if (attachment == nullptr) {
    const bool receive = (record.flags & RecordFlags::kReceive) != 0, transfer = (record.flags & RecordFlags::kTransfer) != 0;
    number = attachments_.insert({.port = record.to, .peer = from, .right = record.from, .receive = receive, .transfer = transfer,
                                  .stream = record.stream});
    attachment = attachments_.find(number);
    port->attachments.push_back(number);
    if (!receive && !transfer) ++port->senders;
  }
  ++peer.attachments;
  if (port->state == PortState::moved) {
    emit(from, {.kind = RecordKind::moved, .to = record.from, .from = number, .number = port->forward.number, .name = port->forward.space});
  } else if (port->state != PortState::leaving) {  // otherwise `moved` is the answer, when all is there
    emit(from, {.kind = RecordKind::attached, .to = record.from, .from = number, .sequence = attachment->expected});
  }
}

void PortRouter::remove_attachment(uint32_t number) {
  Attachment* const attachment = attachments_.find(number);
  if (attachment == nullptr) return;
  const uint32_t where = attachment->port;
  Port& port = *ports_.find(where);
  const bool receive = attachment->receive, sender = !receive && !attachment->transfer;
  const uint64_t stream = attachment->stream;
  drop_arriving(*attachment, port);
  if (const auto peer = peers_.find(attachment->peer); peer != peers_.end()) --peer->second.attachments;
  std::erase(port.attachments, number);
  attachments_.erase(number);
  if (sender) {
    --port.senders;
    const bool told = port.state == PortState::moved || (port.state == PortState::leaving && port.transfer != 0);
    const Attachment* const claimer = told ? attachments_.find(port.claimer) : nullptr;
    if (claimer != nullptr) emit(claimer->peer, {.kind = RecordKind::sender_gone, .to = claimer->right, .stream = stream});
  }
  const auto is_offer = [&](uint32_t each) { return attachments_.find(each)->receive; };
  const bool offered = std::any_of(port.attachments.begin(), port.attachments.end(), is_offer);
  if (receive && (number == port.claimer || (port.state == PortState::offered && !offered))) return erase_port(where);
  wake(port);
  wake_starved();
  check_senders(where);
  check_end(where);
}

// Tells all holders that the message port is gone.
void PortRouter::end_senders(Port& port) {
  for (const uint32_t number : std::exchange(port.attachments, {})) {
    Attachment& attachment = *attachments_.find(number);
    drop_arriving(attachment, port);
    if (const auto peer = peers_.find(attachment.peer); peer != peers_.end()) --peer->second.attachments;
    emit(attachment.peer, {.kind = RecordKind::refused, .error = PortError::dead_name, .to = attachment.right, .from = number});
    attachments_.erase(number);
  }
  port.senders = 0;
}

void PortRouter::erase_port(uint32_t number) {
  Port* const found = ports_.find(number);
  if (found == nullptr) return;
  Port port = std::move(*found);
  found->state = PortState::lost;
  found->attachments.clear();
  end_senders(port);
  if (Right* const right = rights_.find(port.claim)) right->port = 0;
  if (Right* const right = rights_.find(port.transfer)) right->port = 0;
  ports_.erase(number);
  for (Parcel& parcel : port.queue) {
    if (parcel.event == PortEvent::message) memory_ -= parcel.bytes.size();
    release_parcel(parcel);
  }
  for (const uint32_t each : port.unborn) die(each, PortError::dead_name);
  disown(port.claim);
  if (Right* const right = rights_.find(port.transfer)) {
    for (Parcel& parcel : std::exchange(right->messages, {})) release_parcel(parcel);
    right->next = right->offset = 0;
    disown(port.transfer);
  }
  wake_starved();
}

// Ends the part of a former home when no right can depend on it: each has attached elsewhere, and our former home has ended its part.
void PortRouter::check_end(uint32_t number) {
  const Port* const port = ports_.find(number);
  if (port != nullptr && port->state == PortState::moved && port->claim == 0 && port->attachments.size() == 1) erase_port(number);
}

void PortRouter::expire() {
  for (const uint32_t number : std::exchange(expiring_, {})) {
    const Attachment* const attachment = attachments_.find(number);
    if (attachment == nullptr || attachment->peer != kNoPeer) continue;
    if (attachment->deadline <= now_) {
      remove_attachment(number);
    } else {
      expiring_.push_back(number);
    }
  }
}

// ---- messages

void PortRouter::on_message(PeerId from, const Record& record) {
  Attachment* const attachment = attachments_.find(record.to);
  if (attachment == nullptr) return;  // the message port died meanwhile, and the sender has been told
  if (attachment->peer != from || attachment->receive || record.body.size() > record.total) {
    ++counters_.bad_records;
    return;
  }
  Port& port = *ports_.find(attachment->port);
  const bool is_opening = port.state == PortState::arriving && !attachment->transfer;
  const bool is_open = port.state == PortState::here || port.state == PortState::offered || port.state == PortState::arriving;
  // The sender repeats at the new home, or after an ack that ends its wait, what is dropped here.
  if (!is_open || attachment->waiting || record.sequence != attachment->expected) return;
  if (is_opening) return tell_wait(*attachment, record.to, port.waiting);
  if (record.offset == 0 && !attachment->arriving && !begin_message(from, record, *attachment, record.to, port)) return;
  const uint64_t here = attachment->bytes.size();
  if (!attachment->arriving || record.offset != here || record.body.size() > attachment->total - here) return;
  attachment->bytes.insert(attachment->bytes.end(), record.body.begin(), record.body.end());
  if (attachment->bytes.size() == attachment->total) {
    accept(from, *attachment, port);
  } else if ((record.flags & RecordFlags::kAckNow) == 0) {
    return;
  }
  if ((record.flags & RecordFlags::kAckNow) != 0 || ++attachment->unacked >= kAckEvery) return acknowledge(*attachment);
  if (!std::exchange(attachment->ack_due, true)) acks_due_.push_back(record.to);
}

// Reserves room for a message; false: there is none now, or never.
bool PortRouter::begin_message(PeerId from, const Record& record, Attachment& attachment, uint32_t number, Port& port) {
  if (record.total > options_.message_max) {
    emit(from, {.kind = RecordKind::refused, .error = PortError::too_long, .to = attachment.right, .from = number});
    remove_attachment(number);
    return false;
  }
  if (std::exchange(attachment.promised, false)) --port.occupied;
  Peer& peer = peers_.find(from)->second;
  const bool full = (memory_ != 0 && memory_ + record.total > options_.memory) ||
                    (peer.arriving != 0 && from != kSelf && peer.arriving + record.total > options_.memory / 2);
  // An empty queue takes a small message in any case: the receive right of the message port that fills the memory may be in it.
  const bool starved = full && (port.occupied != 0 || record.total > kReserve);
  if (port.occupied >= port.limit || starved) {
    tell_wait(attachment, number, port.occupied >= port.limit ? port.waiting : starved_);
    return false;
  }
  memory_ += record.total;
  peer.arriving += record.total;
  ++port.occupied;
  attachment.arriving = true;
  attachment.total = record.total;
  attachment.bytes.reserve(record.total);
  attachment.flags = record.flags;
  attachment.rights = record.rights;
  return true;
}

void PortRouter::accept(PeerId from, Attachment& attachment, Port& port) {
  Parcel parcel{.bytes = std::move(attachment.bytes)};
  const uint8_t event = attachment.flags >> RecordFlags::kEventShift;
  if (attachment.transfer && event != 0 && event <= kPortEventMax && parcel.bytes.size() == sizeof parcel.cookie) {
    parcel.event = static_cast<PortEvent>(event);
    std::memcpy(&parcel.cookie, parcel.bytes.data(), sizeof parcel.cookie);
    parcel.bytes.clear();
    memory_ -= attachment.total;
    --port.occupied;
  } else {
    ++counters_.received;
  }
  peers_.find(from)->second.arriving -= attachment.total;
  attachment.arriving = false;
  attachment.bytes = {};
  ++attachment.expected;
  for (const RightDescriptor& each : std::exchange(attachment.rights, {})) parcel.rights.push_back({.right = take_descriptor(from, each)});
  port.queue.push_back(std::move(parcel));
}

// Undoes begin_message() for a message of which pieces are missing, and a promise.
void PortRouter::drop_arriving(Attachment& attachment, Port& port) {
  if (std::exchange(attachment.promised, false)) --port.occupied;
  if (!std::exchange(attachment.arriving, false)) return;
  memory_ -= attachment.total;
  --port.occupied;
  if (const auto peer = peers_.find(attachment.peer); peer != peers_.end()) peer->second.arriving -= attachment.total;
  attachment.bytes = {};
  attachment.rights.clear();
}

void PortRouter::acknowledge(Attachment& attachment) {
  attachment.unacked = 0;
  emit(attachment.peer, {.kind = RecordKind::ack, .flags = attachment.waiting ? RecordFlags::kWait : uint8_t{0}, .to = attachment.right,
                         .sequence = attachment.expected});
}

// Sends nothing more for a sender without room until there is room. The queue that comes from a former home goes before the senders.
void PortRouter::tell_wait(Attachment& attachment, uint32_t number, std::deque<uint32_t>& list) {
  ++counters_.waits;
  attachment.waiting = true;
  if (attachment.transfer) {
    list.push_front(number);
  } else {
    list.push_back(number);
  }
  acknowledge(attachment);
}

// Promises the room to senders in the order in which they came. Without a promise those nearby would always be first.
void PortRouter::wake(Port& port) {
  if (port.state != PortState::here && port.state != PortState::offered && port.state != PortState::arriving) return;
  while (port.occupied < port.limit && !port.waiting.empty()) {
    Attachment* const attachment = attachments_.find(port.waiting.front());
    if (attachment != nullptr && port.state == PortState::arriving && !attachment->transfer) return;
    port.waiting.pop_front();
    if (attachment == nullptr || !std::exchange(attachment->waiting, false)) continue;
    attachment->promised = true;
    ++port.occupied;
    acknowledge(*attachment);
  }
}

void PortRouter::wake_starved() {
  for (const uint32_t number : std::exchange(starved_, {})) {
    Attachment* const attachment = attachments_.find(number);
    if (attachment != nullptr && std::exchange(attachment->waiting, false)) acknowledge(*attachment);
  }
}

}  // namespace unet::rpc
