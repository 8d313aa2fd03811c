// port_home.cc - message ports that have their queue in this space, and the rights that are attached to them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "am/rpc/port/port_router.h"

namespace unet::rpc {
namespace {

constexpr uint32_t kAckEvery = 8;            // messages of one sender
constexpr uint32_t kReserve = 64 * 1024;     // bytes of a message that an empty queue takes without regard to PortOptions::memory
constexpr size_t kPieceMin = 4096;           // bytes of a piece that is not the last, of an honest sender

// Returns whether a peer that has `own` parts may take one more of the `free` ones: at most half of what the other peers leave it.
constexpr bool may_take(uint32_t own, uint32_t free) { return free != 0 && (own == 0 || own < (own + free) / 2); }

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
  if (parcel.placed) {
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

// Events of this space do not count for the queue's limit: there is at most one for each request of the program.
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
  const bool is_former = port->state == PortState::arriving && claimed_by != nullptr && claimed_by->peer == from;
  return is_former && port->feeder == 0 ? PortError::none : PortError::bad_right;
}

void PortRouter::on_attach(PeerId from, const Record& record) {
  Port* const port = ports_.find(record.to);
  Peer& peer = peers_.find(from)->second;
  PortError error = check_attach(from, record, port);
  if (error == PortError::bad_right) ++counters_.refused;
  Attachment* attachment = nullptr;
  uint32_t number = 0;
  const bool known = (record.flags & RecordFlags::kFirst) == 0;
  const bool receive = (record.flags & RecordFlags::kReceive) != 0, transfer = (record.flags & RecordFlags::kTransfer) != 0;
  if (error == PortError::none && known) {
    attachment = adopt(from, record, *port, number);
    if (attachment == nullptr) error = PortError::lost;
  } else if (error == PortError::none) {
    const uint32_t own = from == kSelf ? 0 : port->share_of(from).attachments;
    const auto left = options_.senders_max - std::min(options_.senders_max, static_cast<uint32_t>(port->attachments.size()));
    const bool fits = transfer || (may_take(own, left) && (from == kSelf || peer.attachments < options_.peer_rights_max));
    if (fits) {
      number = attachments_.insert({.port = record.to, .peer = from, .right = record.from, .receive = receive, .transfer = transfer,
                                    .stream = record.stream});
    }
    attachment = attachments_.find(number);
    if (attachment == nullptr) error = PortError::no_room;
  }
  if (error != PortError::none) return emit(from, {.kind = RecordKind::refused, .error = error, .to = record.from});
  if (!known) {
    port->attachments.push_back(number);
    if (transfer) port->feeder = number;
    if (!receive && !transfer) ++port->senders;
  }
  ++peer.attachments;
  ++port->shares[from].attachments;
  if (port->state == PortState::moved) {
    emit(from, {.kind = RecordKind::moved, .to = record.from, .from = number, .number = port->forward.number, .name = port->forward.space});
  } else if (port->state != PortState::leaving) {  // otherwise `moved` is the answer, when all is there
    emit(from, {.kind = RecordKind::attached, .to = record.from, .from = number, .sequence = attachment->expected});
  }
}

// Nothing counts the attachment any more. The caller takes it from the list of its message port.
void PortRouter::erase_attachment(Attachment& attachment, uint32_t number, Port& port) {
  drop_arriving(attachment, port);
  if (attachment.waiting) {
    std::erase(port.waiting, number);
    std::erase(starved_, number);
  }
  if (const auto peer = peers_.find(attachment.peer); peer != peers_.end()) --peer->second.attachments;
  if (const auto share = port.shares.find(attachment.peer); share != port.shares.end() && --share->second.attachments == 0) {
    port.shares.erase(share);
  }
  attachments_.erase(number);
}

void PortRouter::remove_attachment(uint32_t number) {
  Attachment* const attachment = attachments_.find(number);
  if (attachment == nullptr) return;
  const uint32_t where = attachment->port;
  Port& port = *ports_.find(where);
  const bool receive = attachment->receive, sender = !receive && !attachment->transfer;
  const uint64_t stream = attachment->stream;
  std::erase(port.attachments, number);
  erase_attachment(*attachment, number, port);
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
    emit(attachment.peer, {.kind = RecordKind::refused, .error = PortError::dead_name, .to = attachment.right, .from = number});
    erase_attachment(attachment, number, port);
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
    memory_ -= parcel.bytes.size();
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
  const uint32_t here = attachment->arrived;
  if (!attachment->arriving || record.offset != here || record.body.size() > attachment->total - here) return;
  if (!attachment->discards) attachment->bytes.insert(attachment->bytes.end(), record.body.begin(), record.body.end());
  attachment->arrived += static_cast<uint32_t>(record.body.size());
  if (attachment->arrived == attachment->total) {
    accept(from, *attachment, port);
  } else {
    if (record.body.size() >= kPieceMin) attachment->deadline = now_ + options_.grace;
    if ((record.flags & RecordFlags::kAckNow) == 0) return;
  }
  if ((record.flags & RecordFlags::kAckNow) != 0 || ++attachment->unacked >= kAckEvery) return acknowledge(*attachment);
  if (std::exchange(attachment->ack_due, true)) return;
  if (acks_due_.empty()) acks_since_ = polled_;
  acks_due_.push_back(record.to);
}

// The peer has a place of the queue without a whole message, and must go on in time.
void PortRouter::begin_hold(Attachment& attachment, Port& port) {
  ++port.shares[attachment.peer].unfinished;
  attachment.deadline = now_ + options_.grace;
}

bool PortRouter::end_hold(Attachment& attachment, Port& port) {
  if (std::exchange(attachment.deadline, kNever) == kNever) return false;
  --port.shares[attachment.peer].unfinished;
  return true;
}

// Reserves room for a message; false: there is none now, or never.
bool PortRouter::begin_message(PeerId from, const Record& record, Attachment& attachment, uint32_t number, Port& port) {
  attachment.discards = record.total > options_.message_max;
  if (attachment.discards && !attachment.transfer) {
    emit(from, {.kind = RecordKind::refused, .error = PortError::too_long, .to = attachment.right, .from = number});
    remove_attachment(number);
    return false;
  }
  if (std::exchange(attachment.promised, false)) {
    --port.occupied;
    end_hold(attachment, port);
  }
  Peer& peer = peers_.find(from)->second;
  const uint32_t bytes = attachment.discards ? 0 : record.total;
  const bool whole = record.total == record.body.size();
  const uint64_t left = options_.memory - std::min(options_.memory, memory_ - peer.arriving);  // by the other peers
  const bool full = (memory_ != 0 && memory_ + bytes > options_.memory) ||
                    (peer.arriving != 0 && from != kSelf && peer.arriving + bytes > left / 2);
  // An empty queue takes a small message in any case: the receive right of the message port that fills the memory may be in it.
  const bool starved = full && (port.occupied != 0 || bytes > kReserve);
  const uint32_t places = port.limit - std::min(port.limit, port.occupied);
  const bool has_place = may_take(whole ? 0 : port.share_of(from).unfinished, places);
  if (!has_place || starved) {
    tell_wait(attachment, number, has_place ? starved_ : port.waiting);
    wake(port);  // the place of the promise is free again
    return false;
  }
  memory_ += bytes;
  peer.arriving += bytes;
  ++port.occupied;
  if (!whole) begin_hold(attachment, port);
  attachment.arriving = true;
  attachment.total = record.total;
  attachment.arrived = 0;
  attachment.bytes.reserve(bytes);
  attachment.flags = record.flags;
  attachment.rights = record.rights;
  return true;
}

void PortRouter::accept(PeerId from, Attachment& attachment, Port& port) {
  Parcel parcel{.placed = true, .bytes = std::move(attachment.bytes)};
  const uint8_t event = attachment.flags >> RecordFlags::kEventShift;
  if (attachment.transfer && event != 0 && event <= kPortEventMax && parcel.bytes.size() == sizeof parcel.cookie) {
    parcel.event = static_cast<PortEvent>(event);
    std::memcpy(&parcel.cookie, parcel.bytes.data(), sizeof parcel.cookie);
    parcel.bytes.clear();
    memory_ -= attachment.total;
  } else {
    ++(attachment.discards ? counters_.discarded : counters_.received);
  }
  if (!attachment.discards) peers_.find(from)->second.arriving -= attachment.total;
  attachment.arriving = false;
  attachment.bytes = {};
  ++attachment.expected;
  for (const RightDescriptor& each : std::exchange(attachment.rights, {})) parcel.rights.push_back({.right = take_descriptor(from, each)});
  if (attachment.discards) {
    --port.occupied;
    release_parcel(parcel);
  } else {
    port.queue.push_back(std::move(parcel));
  }
  if (!end_hold(attachment, port)) return;
  wake(port);  // the peer may take another place, and more memory
  wake_starved();
}

// Undoes begin_message() for a message of which pieces are missing, and a promise.
void PortRouter::drop_arriving(Attachment& attachment, Port& port) {
  if (!attachment.promised && !attachment.arriving) return;
  end_hold(attachment, port);
  --port.occupied;
  attachment.promised = false;
  if (!std::exchange(attachment.arriving, false)) return;
  const uint32_t bytes = attachment.discards ? 0 : attachment.total;
  memory_ -= bytes;
  if (const auto peer = peers_.find(attachment.peer); peer != peers_.end()) peer->second.arriving -= bytes;
  attachment.bytes = {};
  attachment.rights.clear();
}

// The peer has not used its place in time. A sender that was only slow sends its message again when it has a place again.
void PortRouter::lapse(Attachment& attachment, uint32_t number) {
  Port& port = *ports_.find(attachment.port);
  const bool must_repeat = attachment.arriving;
  drop_arriving(attachment, port);
  if (must_repeat) tell_wait(attachment, number, port.waiting);
  wake(port);
  wake_starved();
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
  for (size_t i = 0; port.occupied < port.limit && i < port.waiting.size();) {
    Attachment& attachment = *attachments_.find(port.waiting[i]);
    if (port.state == PortState::arriving && !attachment.transfer) return;
    if (!may_take(port.share_of(attachment.peer).unfinished, port.limit - port.occupied)) {
      ++i;
      continue;
    }
    port.waiting.erase(port.waiting.begin() + static_cast<ptrdiff_t>(i));
    attachment.waiting = false;
    attachment.promised = true;
    ++port.occupied;
    begin_hold(attachment, port);
    acknowledge(attachment);
  }
}

void PortRouter::wake_starved() {
  if (starved_.empty()) return;  // a new deque allocates
  for (const uint32_t number : std::exchange(starved_, {})) {
    Attachment* const attachment = attachments_.find(number);
    if (attachment != nullptr && std::exchange(attachment->waiting, false)) acknowledge(*attachment);
  }
}

}  // namespace unet::rpc
