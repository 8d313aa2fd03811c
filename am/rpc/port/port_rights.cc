// port_rights.cc - rights that this space has: attaching them, sending by them, and giving them away.
#include <algorithm>
#include <utility>

#include "am/rpc/port/port_router.h"

namespace unet::rpc {
namespace {

constexpr uint32_t kPageBytes = 4096;  // piece of stop_and_wait
constexpr size_t kSpareMin = 64 * 1024;            // bytes of a message for which memory is spared
constexpr uint64_t kSpareMax = uint64_t{32} << 20;  // bytes: a window of messages of 1 MiB
constexpr size_t kHomesMax = 64;       // former homes of one right; only a peer that lies reaches it

}  // namespace

// ---- calls of the program

uint32_t PortRouter::make_send_right(uint32_t number) {
  Port* const port = ports_.find(number);
  if (port == nullptr || (port->state != PortState::here && port->state != PortState::arriving)) return 0;
  const uint32_t made = add_right({.peer = kSelf, .address = {.space = name_, .number = number, .key = port->key}});
  if (made == 0) return 0;
  Right& right = *rights_.find(made);
  if (port->has_key) {
    begin_attach(made, right);
  } else {
    right.state = RightState::unborn;
    right.deadline = now_ + 2 * options_.grace;  // the former home may wait for rights in its queue before it tells the key
    port->unborn.push_back(made);
  }
  drain();
  return made;
}

uint32_t PortRouter::copy(uint32_t number) {
  const Right* const right = rights_.find(number);
  if (right == nullptr || right->receive || right->state == RightState::looking) return 0;
  if (right->state == RightState::unborn) return make_send_right(right->address.number);
  const uint32_t made = add_right({.address = right->address});
  if (made == 0) return 0;
  if (right->state == RightState::dead) {
    die(made, right->error);
  } else {
    begin_attach(made, *rights_.find(made));
  }
  drain();
  return made;
}

void PortRouter::close(uint32_t number) {
  disown(number);
  drain();
}

SendResult PortRouter::send(uint32_t number, std::vector<std::byte> bytes, std::span<const Given> given) {
  Right* const right = rights_.find(number);
  if (right == nullptr || !right->owned || right->receive || given.size() > kRightsMax) return SendResult::bad_call;
  if (right->state == RightState::dead) return SendResult::dead;
  if (bytes.size() > options_.message_max) return SendResult::too_long;
  if (right->messages.size() >= options_.window || rights_.size() + given.size() > options_.rights_max) return SendResult::would_block;
  for (const Given& each : given) {
    const bool twice = std::count_if(given.begin(), given.end(), [&](const Given& other) {
                         return other.number == each.number && other.receive == each.receive;
                       }) != 1;
    if (twice || each.number == (each.receive ? 0 : number)) return SendResult::bad_call;
    if (each.receive) {
      const Port* const port = ports_.find(each.number);
      if (port != nullptr && port->state == PortState::arriving) return SendResult::would_block;
      const bool to_itself = right->peer == kSelf && right->address.number == each.number;
      if (port == nullptr || port->state != PortState::here || to_itself) return SendResult::bad_call;
    } else {
      const Right* const other = rights_.find(each.number);
      if (other == nullptr || !other->owned || other->receive) return SendResult::bad_call;
    }
  }
  Parcel parcel{.bytes = std::move(bytes)};
  for (const Given& each : given) parcel.rights.push_back({.right = each.receive ? offer(each.number) : each.number});
  right->messages.push_back(std::move(parcel));
  make_ready(number, *right);
  drain();
  return SendResult::sent;
}

std::vector<std::byte> PortRouter::copy_of(Bytes bytes) {
  if (spare_.empty() || bytes.size() < spare_.back().capacity() / 2) return {bytes.begin(), bytes.end()};
  std::vector<std::byte> copy = std::move(spare_.back());
  spare_.pop_back();
  spare_bytes_ -= copy.capacity();
  copy.assign(bytes.begin(), bytes.end());
  return copy;
}

void PortRouter::spare(std::vector<std::byte> memory) {
  if (memory.capacity() < kSpareMin || memory.capacity() > kSpareMax - spare_bytes_) return;
  spare_bytes_ += memory.capacity();
  spare_.push_back(std::move(memory));
}

PortError PortRouter::error_of(uint32_t number) {
  const Right* const right = rights_.find(number);
  return right == nullptr ? PortError::no_room : right->error;
}

bool PortRouter::can_send(uint32_t number) {
  const Right* const right = rights_.find(number);
  return right != nullptr && right->state != RightState::dead && right->messages.size() < options_.window;
}

void PortRouter::notify_dead_name(uint32_t number, uint32_t to, uint64_t cookie) {
  Right* const right = rights_.find(number);
  if (right == nullptr || right->state == RightState::dead) return queue_event(to, PortEvent::dead_name, cookie);
  right->watcher = to;
  right->cookie = cookie;
}

// ---- the life of a right

uint32_t PortRouter::add_right(Right right) {
  if (rights_.size() >= options_.rights_max) return 0;
  right.stream = random_.next();
  return rights_.insert(std::move(right));
}

void PortRouter::begin_attach(uint32_t number, Right& right) {
  right.state = RightState::attaching;
  right.deadline = now_ + options_.grace;
  right.peer = resolve(right.address);
  if (right.peer == kNoPeer) return die(number, PortError::unreachable);
  uint8_t flags = right.first ? RecordFlags::kFirst : 0;
  if (right.receive) flags |= RecordFlags::kReceive;
  if (right.transfer) flags |= RecordFlags::kTransfer;
  emit(right.peer, {.kind = RecordKind::attach, .flags = flags, .to = right.address.number, .from = number, .stream = right.stream,
                    .key = right.address.key});
}

// The right is attached or dead: tells all that wait for this.
void PortRouter::settled(uint32_t number) {
  Right& right = *rights_.find(number);
  if (right.done_peer != kNoPeer) {
    emit(std::exchange(right.done_peer, kNoPeer), {.kind = RecordKind::done, .to = right.done_transit});
  }
  if (right.state == RightState::attached) {
    if (right.receive && right.port != 0) send_claim(right);
    if (right.transits == 0) detach_old(right);
    make_ready(number, right);
    if (right.transfer && right.messages.empty()) finish_leaving(right.port);
  }
  resume_stalled();
  end_if_unused(number);
}

void PortRouter::die(uint32_t number, PortError error) {
  Right* const right = rights_.find(number);
  if (right == nullptr || right->state == RightState::dead) return;
  if (right->state == RightState::attached) emit(right->peer, {.kind = RecordKind::detach, .to = right->attachment});
  right->state = RightState::dead;
  right->error = error;
  detach_old(*right);
  counters_.undelivered += right->messages.size();
  for (Parcel& parcel : std::exchange(right->messages, {})) release_parcel(parcel);
  if (right->watcher != 0) queue_event(right->watcher, PortEvent::dead_name, right->cookie);
  const uint32_t port = std::exchange(right->port, 0);
  const bool receive = right->receive;
  if (port != 0) right->owned = false;  // the message port owned it
  settled(number);
  if (port == 0) return;
  if (receive) {
    end_claim(port, error);
  } else {
    erase_port(port);  // the new home is lost, or does not take the queue
  }
}

void PortRouter::disown(uint32_t number) {
  Right* const right = rights_.find(number);
  if (right == nullptr) return;
  right->owned = false;
  end_if_unused(number);
}

void PortRouter::end_if_unused(uint32_t number) {
  Right* const right = rights_.find(number);
  if (right == nullptr || right->owned || right->transits != 0) return;
  switch (right->state) {
    case RightState::looking:
    case RightState::unborn:
    case RightState::attaching: return;  // until the answer comes
    case RightState::attached:
      if (!right->messages.empty()) return;
      emit(right->peer, {.kind = RecordKind::detach, .to = right->attachment});
      break;
    case RightState::dead: break;
  }
  detach_old(*right);
  rights_.erase(number);
}

void PortRouter::detach_old(Right& right) {
  for (const OldHome& each : std::exchange(right.old, {})) emit(each.peer, {.kind = RecordKind::detach, .to = each.attachment});
}

void PortRouter::release_transit(uint32_t number) {
  const Transit* const transit = transits_.find(number);
  if (transit == nullptr) return;
  const uint32_t which = transit->right;
  if (const auto peer = peers_.find(transit->peer); peer != peers_.end()) --peer->second.transits;
  transits_.erase(number);
  Right* const right = rights_.find(which);
  if (right == nullptr) return;
  if (--right->transits == 0 && right->state == RightState::attached) detach_old(*right);
  end_if_unused(which);
  resume_stalled();
}

// The peer has the descriptor, or the message with it: its right is attached or dead within its own grace time.
void PortRouter::expect_done(uint32_t number) {
  if (Transit* const transit = transits_.find(number)) transit->deadline = now_ + 2 * options_.grace;
}

// Ends the rights of a message that will not be delivered, or that no program receives.
void PortRouter::release_parcel(Parcel& parcel) {
  for (const SentRight& each : parcel.rights) {
    release_transit(each.transit);
    disown(each.right);
  }
}

// ---- rights of other spaces

uint32_t PortRouter::take_descriptor(PeerId from, const RightDescriptor& descriptor) {
  Right right{.receive = descriptor.receive};
  if (descriptor.error == PortError::none) {
    right.address = {.space = absolute(descriptor.space, from), .number = descriptor.number, .key = descriptor.key};
    right.done_peer = from;
    right.done_transit = descriptor.transit;
  }
  const uint32_t number = add_right(std::move(right));
  if (number == 0) {
    emit(from, {.kind = RecordKind::done, .to = descriptor.transit});
  } else if (descriptor.error != PortError::none) {
    die(number, descriptor.error);
  } else {
    begin_attach(number, *rights_.find(number));
  }
  return number;
}

// A message that is sent again takes its transits along.
RightDescriptor PortRouter::describe(uint32_t number, Right& right, SentRight& sent, PeerId to) {
  RightDescriptor descriptor{.receive = right.receive, .error = right.error};
  if (right.state == RightState::dead) {
    release_transit(std::exchange(sent.transit, 0));  // an earlier attempt to send it
    return descriptor;
  }
  Peer& peer = peers_.find(to)->second;
  if (Transit* const before = transits_.find(sent.transit)) {
    if (const auto old = peers_.find(before->peer); old != peers_.end()) --old->second.transits;
    before->peer = to;
  } else {
    sent.transit = transits_.insert({.right = number, .peer = to});
    if (sent.transit == 0) return {.receive = right.receive, .error = PortError::no_room};
    ++right.transits;
  }
  ++peer.transits;
  descriptor.number = right.address.number;
  descriptor.transit = sent.transit;
  descriptor.key = right.address.key;
  descriptor.space = right.peer == kSelf ? name_ : right.address.space;
  return descriptor;
}

bool PortRouter::are_settled(const Parcel& parcel) {
  return std::all_of(parcel.rights.begin(), parcel.rights.end(), [&](const SentRight& each) {
    const Right* const right = rights_.find(each.right);
    return right == nullptr || right->state == RightState::attached || right->state == RightState::dead;
  });
}

// ---- messages on their way out

bool PortRouter::has_more(const Right& right) const noexcept {
  return right.state == RightState::attached && !right.blocked && !right.awaiting && right.next < right.messages.size();
}

void PortRouter::make_ready(uint32_t number, Right& right) {
  if (right.is_ready || !has_more(right)) return;
  const auto peer = peers_.find(right.peer);
  if (peer == peers_.end()) return;
  right.is_ready = true;
  peer->second.ready.push_back(number);
  list_outgoing(right.peer, peer->second);
}

// Message ports that leave wait for the same events.
void PortRouter::resume_stalled() {
  for (const uint32_t number : std::exchange(stalled_, {})) {
    if (Right* const right = rights_.find(number)) make_ready(number, *right);
  }
  for (const uint32_t number : std::exchange(leaving_, {})) try_leave(number);
}

// Returns whether another right has a message under way to the peer.
bool PortRouter::is_busy(Peer& peer, PeerId id, uint32_t number) {
  const Right* const right = rights_.find(peer.busy);
  return peer.busy != number && right != nullptr && right->peer == id && right->state == RightState::attached &&
         (right->awaiting || right->offset != 0 || right->next != 0);
}

bool PortRouter::next_piece(uint32_t number, Right& right, PeerId to, Record& record) {
  Peer& peer = peers_.find(to)->second;
  Parcel& parcel = right.messages[right.next];
  const bool stops = options_.flow == PortFlow::stop_and_wait;
  const bool full = !parcel.rights.empty() && to != kSelf && peer.transits + parcel.rights.size() > options_.peer_rights_max;
  if ((right.offset == 0 && (full || !are_settled(parcel))) || (stops && is_busy(peer, to, number))) {
    stalled_.push_back(number);
    return false;
  }
  const auto total = static_cast<uint32_t>(parcel.bytes.size());
  record = {.kind = RecordKind::message, .to = right.attachment, .total = total, .offset = right.offset,
            .sequence = right.base + right.next};
  record.flags = static_cast<uint8_t>(static_cast<uint8_t>(parcel.event) << RecordFlags::kEventShift);
  if (right.offset == 0) {
    for (SentRight& each : parcel.rights) {
      Right* const other = rights_.find(each.right);
      record.rights.push_back(other == nullptr ? RightDescriptor{.error = PortError::no_room} : describe(each.right, *other, each, to));
    }
  } else {
    record.flags |= RecordFlags::kPiece;
  }
  const uint32_t room = std::min(kRecordMax - head_size(record), stops ? kPageBytes : kRecordMax);
  record.body = Bytes(parcel.bytes).subspan(right.offset, std::min(room, total - right.offset));
  right.offset += static_cast<uint32_t>(record.body.size());
  if (right.offset == total) {
    ++right.next;
    right.offset = 0;
    if (right.messages.size() >= options_.window) record.flags |= RecordFlags::kAckNow;
  }
  if (stops) {
    record.flags |= RecordFlags::kAckNow;
    right.awaiting = true;
    peer.busy = number;
  }
  return true;
}

void PortRouter::pop_acked(Right& right, uint64_t sequence) {
  for (; right.base < sequence; ++right.base) {
    for (const SentRight& each : right.messages.front().rights) {
      expect_done(each.transit);
      disown(each.right);
    }
    spare(std::move(right.messages.front().bytes));
    right.messages.pop_front();
    ++counters_.sent;
  }
}

// ---- answers of homes

void PortRouter::on_attached(PeerId from, const Record& record) {
  Right* const right = rights_.find(record.to);
  if (right == nullptr || right->state == RightState::dead) {  // the answer came too late
    return emit(from, {.kind = RecordKind::detach, .to = record.from});
  }
  if (right->peer != from || right->state != RightState::attaching) {
    ++counters_.bad_records;
    return;
  }
  right->state = RightState::attached;
  right->attachment = record.from;
  right->first = false;
  if (record.sequence < right->base || record.sequence - right->base > right->messages.size()) {
    ++counters_.bad_records;
    return die(record.to, PortError::lost);
  }
  pop_acked(*right, record.sequence);
  settled(record.to);
}

// A refusal may come from a former home, perhaps of the same peer.
void PortRouter::on_refused(PeerId from, const Record& record) {
  Right* const right = rights_.find(record.to);
  if (right == nullptr) return;
  const auto is_old = [&](const OldHome& each) { return each.peer == from && each.attachment == record.from; };
  if (std::erase_if(right->old, is_old) != 0) return;
  const bool asked = right->state == RightState::attaching || right->state == RightState::looking;
  const bool is_home = right->state == RightState::attached && right->attachment == record.from;
  if (right->peer == from && (asked || is_home)) die(record.to, record.error == PortError::none ? PortError::dead_name : record.error);
}

void PortRouter::on_moved(PeerId from, const Record& record) {
  Right* const right = rights_.find(record.to);
  if (right == nullptr || right->state == RightState::dead) {  // the answer came too late, or crosses our detach record
    return emit(from, {.kind = RecordKind::detach, .to = record.from});
  }
  const bool waits = right->state == RightState::attached || right->state == RightState::attaching;
  if (!waits || right->peer != from || right->receive || right->transfer) {
    ++counters_.bad_records;
    return;
  }
  right->old.push_back({from, record.from});
  right->state = RightState::attaching;
  right->blocked = right->awaiting = right->is_ready = false;
  right->next = 0;
  right->offset = 0;
  if (right->old.size() > kHomesMax) return die(record.to, PortError::lost);
  if (!right->owned && right->messages.empty() && right->transits == 0) {
    right->state = RightState::dead;  // it needs no home any more
    return settled(record.to);
  }
  right->address.space = absolute(record.name, from);
  right->address.number = record.number;
  begin_attach(record.to, *right);
  resume_stalled();
}

void PortRouter::on_ack(PeerId from, const Record& record) {
  Right* const right = rights_.find(record.to);
  if (right == nullptr) return;
  const bool is_home = right->peer == from && right->state == RightState::attached;
  if (!is_home || record.sequence < right->base || record.sequence - right->base > right->next) {
    ++counters_.bad_records;
    return;
  }
  const uint64_t acked = record.sequence - right->base;
  pop_acked(*right, record.sequence);
  right->next -= acked;
  right->awaiting = false;
  const bool waits = (record.flags & RecordFlags::kWait) != 0;
  if (waits || right->blocked) {
    right->next = 0;
    right->offset = 0;
  }
  right->blocked = waits;
  make_ready(record.to, *right);
  if (right->transfer && right->messages.empty()) finish_leaving(right->port);
  end_if_unused(record.to);
  resume_stalled();
}

void PortRouter::on_done(PeerId from, const Record& record) {
  const Transit* const transit = transits_.find(record.to);
  if (transit != nullptr && transit->peer == from) release_transit(record.to);
}

void PortRouter::on_found(PeerId from, const Record& record) {
  Right* const right = rights_.find(record.to);
  if (right == nullptr || right->state == RightState::dead) {  // the answer came too late
    for (const RightDescriptor& each : record.rights) emit(from, {.kind = RecordKind::done, .to = each.transit});
    return;
  }
  if (right->peer != from || right->state != RightState::looking || record.rights.size() != 1) {
    ++counters_.bad_records;
    return;
  }
  const RightDescriptor& descriptor = record.rights.front();
  if (descriptor.error != PortError::none || descriptor.receive) {
    return die(record.to, descriptor.receive ? PortError::bad_right : descriptor.error);
  }
  right->address = {.space = absolute(descriptor.space, from), .number = descriptor.number, .key = descriptor.key};
  right->done_peer = from;
  right->done_transit = descriptor.transit;
  begin_attach(record.to, *right);
}

}  // namespace unet::rpc
