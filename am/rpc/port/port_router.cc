// port_router.cc - records on their way to and from peers, and published rights.
#include "am/rpc/port/port_router.h"

#include <algorithm>
#include <utility>

namespace unet::rpc {
namespace {

constexpr size_t kControlMax = 16 * 1024;  // records that wait for one peer; an honest one lets far fewer gather
constexpr Nanoseconds kAckDelay = 50 * kMicrosecond;  // an ack that waits may be one for several messages
constexpr Nanoseconds kExpiries = 4;       // looks for expired waits in PortOptions::grace

}  // namespace

PortOptions PortRouter::within_slots(PortOptions options) noexcept {
  options.rights_max = std::min(options.rights_max, Slots<Right>::kMax);
  return options;
}

PortRouter::PortRouter(PortCarrier& carrier, std::string name, const PortOptions& options, uint64_t seed)
    : carrier_(carrier), name_(std::move(name)), options_(within_slots(options)), random_(seed), self_(peers_[kSelf]) {}

// ---- records

void PortRouter::handle(PeerId from, const Record& record) {
  peers_.try_emplace(from);
  dispatch(from, record);
  drain();
}

void PortRouter::dispatch(PeerId from, const Record& record) {
  switch (record.kind) {
    case RecordKind::attach: return on_attach(from, record);
    case RecordKind::attached: return on_attached(from, record);
    case RecordKind::refused: return on_refused(from, record);
    case RecordKind::moved: return on_moved(from, record);
    case RecordKind::message: return on_message(from, record);
    case RecordKind::ack: return on_ack(from, record);
    case RecordKind::done: return on_done(from, record);
    case RecordKind::claim: return on_claim(from, record);
    case RecordKind::state: return on_state(from, record);
    case RecordKind::sender: return on_sender(from, record);
    case RecordKind::opened: return on_opened(from, record);
    case RecordKind::sender_gone: return on_sender_gone(from, record);
    case RecordKind::look_up: return on_look_up(from, record);
    case RecordKind::found: return on_found(from, record);
    case RecordKind::detach: {
      // A record may cross one of ours that has removed the attachment already.
      const Attachment* const attachment = attachments_.find(record.to);
      if (attachment != nullptr && attachment->peer == from) remove_attachment(record.to);
      return;
    }
  }
}

// Records for a peer that was lost are dropped.
void PortRouter::emit(PeerId to, Record record) {
  const auto found = peers_.find(to);
  if (found == peers_.end() || found->second.overrun) return;
  Peer& peer = found->second;
  if (to != kSelf && peer.control.size() >= kControlMax) {
    peer.overrun = true;
    ++counters_.overrun;
    return;
  }
  peer.control.push_back(std::move(record));
  list_outgoing(to, peer);
}

void PortRouter::list_outgoing(PeerId id, Peer& peer) {
  if (id != kSelf && !std::exchange(peer.outgoing, true)) outgoing_.push_back(id);
}

void PortRouter::add_outgoing(PeerId id) {
  if (const auto found = peers_.find(id); found != peers_.end()) list_outgoing(id, found->second);
}

void PortRouter::take_outgoing(std::vector<PeerId>& peers) {
  peers.clear();
  peers.swap(outgoing_);
  for (const PeerId id : peers) {
    if (const auto found = peers_.find(id); found != peers_.end()) found->second.outgoing = false;
  }
}

bool PortRouter::is_overrun(PeerId peer) const {
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.overrun;
}

bool PortRouter::take(PeerId id, Record& record) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return false;
  Peer& peer = found->second;
  if (!peer.control.empty()) {
    record = std::move(peer.control.front());
    peer.control.pop_front();
    return true;
  }
  while (!peer.ready.empty()) {
    const uint32_t number = peer.ready.front();
    peer.ready.pop_front();
    Right* const right = rights_.find(number);
    if (right == nullptr || right->peer != id) continue;  // its message port has moved
    right->is_ready = false;
    if (!has_more(*right) || !next_piece(number, *right, id, record)) continue;
    make_ready(number, *right);  // behind the others: each gets a piece in turn
    return true;
  }
  return false;
}

// Handles what this space sends to itself. Every call that may emit records ends with this one.
void PortRouter::drain() {
  if ((self_.control.empty() && self_.ready.empty()) || std::exchange(draining_, true)) return;
  Record record;
  while (take(kSelf, record)) dispatch(kSelf, record);
  draining_ = false;
}

void PortRouter::poll(Nanoseconds now, bool idle) {
  // After a pause of this space, answers of its peers may be here that it has not seen yet.
  now_ += std::min(now - std::exchange(polled_, now), options_.grace / kExpiries + 1);
  // More entries than attachments: most are of attachments that have ended.
  if (idle || now - acks_since_ >= kAckDelay || acks_due_.size() > attachments_.size()) {
    acks_leaving_.swap(acks_due_);
    for (const uint32_t number : acks_leaving_) {
      Attachment* const attachment = attachments_.find(number);
      if (attachment == nullptr) continue;
      attachment->ack_due = false;
      if (attachment->unacked != 0) acknowledge(*attachment);
    }
    acks_leaving_.clear();
  }
  if (now_ >= next_expiry_) expire();
  drain();
}

void PortRouter::expire() {
  next_expiry_ = now_ + options_.grace / kExpiries + 1;
  spare_.clear();
  spare_bytes_ = 0;
  std::vector<uint32_t> attachments, rights, transits;
  attachments_.for_each([&](uint32_t number, const Attachment& attachment) {
    if (attachment.deadline <= now_) attachments.push_back(number);
  });
  rights_.for_each([&](uint32_t number, const Right& right) {
    const bool waits = right.state != RightState::attached && right.state != RightState::dead;
    if (waits && right.deadline <= now_) rights.push_back(number);
  });
  transits_.for_each([&](uint32_t number, const Transit& transit) {
    if (transit.deadline <= now_) transits.push_back(number);
  });
  counters_.expired += attachments.size() + rights.size() + transits.size();
  for (const uint32_t number : attachments) {
    Attachment* const attachment = attachments_.find(number);
    if (attachment == nullptr) continue;
    if (attachment->peer == kNoPeer) {
      remove_attachment(number);
    } else {
      lapse(*attachment, number);
    }
  }
  for (const uint32_t number : rights) die(number, PortError::unreachable);
  for (const uint32_t number : transits) release_transit(number);
}

// ---- peers

// A message port of this space may come back under a name that has our host's name in it, so its secret decides.
PeerId PortRouter::resolve(const Address& address) {
  if (address.space.substr(0, address.space.find('@')) == name_) {
    const Port* const port = ports_.find(address.number);
    const bool is_ours = port != nullptr && (port->key == address.key || port->ticket == address.key);
    if (is_ours || address.space.size() == name_.size()) return kSelf;
  }
  const PeerId peer = carrier_.reach(address.space);
  if (peer != kNoPeer) peers_.try_emplace(peer);
  return peer;
}

// Returns the name as it is known here; empty: no space has such a long one.
std::string PortRouter::absolute(const std::string& space, PeerId from) const {
  const std::string_view host = from == kSelf ? std::string_view() : carrier_.host_of(from);
  if (host.empty() || space.find('@') != std::string::npos) return space;
  std::string whole = space + "@" + std::string(host);
  return whole.size() <= kPublishedNameMax ? whole : std::string();
}

void PortRouter::peer_lost(PeerId lost) {
  if (lost == kSelf || peers_.erase(lost) == 0) return;
  std::vector<uint32_t> dead, released, gone;
  rights_.for_each([&](uint32_t number, Right& right) {
    std::erase_if(right.old, [&](const OldHome& each) { return each.peer == lost; });
    if (right.done_peer == lost) right.done_peer = kNoPeer;
    if (right.peer == lost && right.state != RightState::dead) dead.push_back(number);
  });
  transits_.for_each([&](uint32_t number, const Transit& transit) {
    if (transit.peer == lost) released.push_back(number);
  });
  attachments_.for_each([&](uint32_t number, const Attachment& attachment) {
    if (attachment.peer == lost) gone.push_back(number);
  });
  for (const uint32_t number : dead) die(number, PortError::unreachable);
  for (const uint32_t number : released) release_transit(number);
  for (const uint32_t number : gone) remove_attachment(number);
  drain();
}

bool PortRouter::is_settled() {
  bool settled = transits_.size() == 0;
  rights_.for_each([&](uint32_t, const Right& right) {
    settled = settled && right.messages.empty() && right.state != RightState::attaching && right.state != RightState::looking;
  });
  ports_.for_each([&](uint32_t, const Port& port) {
    settled = settled && port.state != PortState::leaving && port.state != PortState::offered && port.state != PortState::arriving;
  });
  for (auto& [id, peer] : peers_) settled = settled && peer.control.empty();
  return settled;
}

// ---- published rights

Published PortRouter::publish(std::string name, uint32_t number) {
  const Right* const right = rights_.find(number);
  if (right == nullptr || right->state != RightState::attached) return Published::not_attached;
  return published_.try_emplace(std::move(name), number).second ? Published::yes : Published::name_in_use;
}

void PortRouter::unpublish(const std::string& name) {
  const auto found = published_.find(name);
  if (found == published_.end()) return;
  disown(found->second);
  published_.erase(found);
  drain();
}

uint32_t PortRouter::look_up(std::string_view space, std::string_view name) {
  const uint32_t number = add_right({.state = RightState::looking, .deadline = now_ + options_.grace});
  if (number == 0) return 0;
  Right& right = *rights_.find(number);
  right.peer = resolve({.space = std::string(space)});
  if (right.peer == kNoPeer) {
    die(number, PortError::unreachable);
  } else if (name.size() > kPublishedNameMax) {
    die(number, PortError::not_found);
  } else {
    emit(right.peer, {.kind = RecordKind::look_up, .from = number, .name = std::string(name)});
  }
  drain();
  return number;
}

void PortRouter::on_look_up(PeerId from, const Record& record) {
  const auto found = published_.find(record.name);
  Right* const right = found == published_.end() ? nullptr : rights_.find(found->second);
  const bool full = from != kSelf && peers_.find(from)->second.transits >= options_.peer_rights_max;
  if (right == nullptr || right->state == RightState::attaching || full) {
    return emit(from, {.kind = RecordKind::refused, .error = full ? PortError::no_room : PortError::not_found, .to = record.from});
  }
  SentRight sent{.right = found->second};
  Record answer{.kind = RecordKind::found, .to = record.from};
  answer.rights.push_back(describe(found->second, *right, sent, from));
  expect_done(sent.transit);
  emit(from, std::move(answer));
}

}  // namespace unet::rpc
