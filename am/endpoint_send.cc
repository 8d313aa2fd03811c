// endpoint_send.cc - requests, gets and replies on their way out.
#include <algorithm>

#include "am/endpoint.h"
#include "unet/base/bytes.h"
#include "unet/base/check.h"

namespace unet::am {
namespace {

void copy_arguments(PacketFields& fields, std::span<const uint32_t> arguments) noexcept {
  fields.count = static_cast<uint8_t>(arguments.size());
  copy_words(fields.arguments.data(), arguments.data(), fields.count);
}
PacketFields fields_of(Kind kind, uint8_t handler, std::span<const uint32_t> arguments) noexcept {
  PacketFields fields({.kind = kind, .handler = handler});
  copy_arguments(fields, arguments);
  return fields;
}

}  // namespace

// ---- checks of every request

Endpoint::Translation* Endpoint::find(Index to, Kind kind, uint8_t handler, std::span<const uint32_t> arguments, Outcome& outcome) {
  outcome = Outcome::bad_call;
  if (__builtin_expect(handlers_.running() || arguments.size() > kArgumentsMax, 0)) return nullptr;
  if (__builtin_expect(++unpolled_ >= kPollEvery, 0)) poll();
  if (__builtin_expect(!is_mapped(to), 0)) {
    if (const auto why = open_late(to)) {
      outcome = handlers_.come_back(*why, kind, handler, to, arguments);
      return nullptr;
    }
  }
  if (__builtin_expect(!is_mapped(to) || wait_credit(to, translations_[to].peer->id) == nullptr, 0)) {
    outcome = handlers_.come_back(ReturnStatus::unreachable, kind, handler, to, arguments);
    return nullptr;
  }
  return &translations_[to];
}

// Returns the translation's peer if it is open and has this identity, else nullptr.
inline Peer* Endpoint::open_peer(Index to, uint64_t id) noexcept {
  Peer* const peer = is_mapped(to) ? translations_[to].peer : nullptr;
  return peer != nullptr && peer->open && peer->id == id ? peer : nullptr;
}

// Waits until that peer has a credit; nullptr if the peer is gone.
Peer* Endpoint::wait_credit(Index to, uint64_t id) {
  Peer* peer = open_peer(to, id);
  if (__builtin_expect(peer == nullptr || peer->has_credit(), 1)) return peer;
  for (Waiting waiting(*this); peer != nullptr && !peer->has_credit(); peer = open_peer(to, id)) waiting.serve();
  return peer;
}

// Waits for a credit and for room in the channel.
Outcome Endpoint::send_request(Index to, uint64_t id, PacketFields& fields, Bytes payload) {
  Waiting waiting(*this);
  while (Peer* const peer = wait_credit(to, id)) {
    const Tag tag = translations_[to].tag;
    peer->add_tag(tag, fields);
    const SendOutcome outcome = peers_.send(*peer, tag, to, fields, payload);
    if (__builtin_expect(outcome == SendOutcome::sent, 1)) return Outcome::sent;
    if (outcome != SendOutcome::full) {
      look_around();  // handles what the peer sent before its end, before anything is returned
      break;
    }
    waiting.serve();
  }
  if (fields.kind == Kind::long_piece) return Outcome::returned;  // only the whole message is returned, once
  return handlers_.come_back(ReturnStatus::unreachable, fields.kind, fields.handler, to, {fields.arguments.data(), fields.count});
}

// ---- short and medium

// Returns the peer of a request that may take the fast path: local, without waiting and without a new tag. Otherwise nullptr.
inline Peer* Endpoint::plain_peer(Index to) noexcept {
  if (__builtin_expect(to >= translations_.size() || handlers_.running(), 0)) return nullptr;
  const Translation& found = translations_[to];
  if (__builtin_expect(found.peer == nullptr, 0)) return nullptr;
  Peer& peer = *found.peer;
  if (__builtin_expect(peer.wire != nullptr || !peer.open || peer.tag_told != found.tag || !peer.has_credit(), 0)) return nullptr;
  return &peer;
}

// The fast path of a short request. Returns false without effect if the request needs the general path.
inline bool Endpoint::send_line(Index to, uint8_t handler, std::span<const uint32_t> arguments) {
  Peer* const peer = plain_peer(to);
  if (__builtin_expect(peer == nullptr || !peer->local.send_line(Kind::short_request, handler, arguments), 0)) return false;
  peer->record(to, Kind::short_request, handler, arguments);
  ++counters_.requests;
  return true;
}

// The fast path of a long request to a peer that is known to expose its segment.
inline bool Endpoint::send_long_line(Index to, uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments) {
  Peer* const peer = plain_peer(to);
  if (__builtin_expect(peer == nullptr || outside_segment(peer->local.region(), offset, payload.size()), 0)) return false;
  if (__builtin_expect(payload.size() > LocalLink::kPutMax || arguments.size() > kLongLineArguments, 0)) return false;
  if (__builtin_expect(!peer->local.put(offset, payload), 0)) return false;
  if (__builtin_expect(!peer->local.send_long_line(handler, arguments, {offset, payload.size()}), 0)) return false;
  peer->record(to, Kind::long_request, handler, arguments);
  ++counters_.requests;
  return true;
}

Outcome Endpoint::request_short(Index to, uint8_t handler, std::span<const uint32_t> arguments) {
  if (__builtin_expect(!must_poll() && send_line(to, handler, arguments), 1)) {
    ++unpolled_;
    return Outcome::sent;
  }
  Outcome outcome;
  Translation* const found = find(to, Kind::short_request, handler, arguments, outcome);
  if (found == nullptr) return outcome;
  PacketFields fields = fields_of(Kind::short_request, handler, arguments);
  return send_request(to, found->peer->id, fields, {});
}

Outcome Endpoint::request_medium(Index to, uint8_t handler, Bytes payload, std::span<const uint32_t> arguments) {
  if (payload.size() > kMediumMax) return Outcome::bad_call;
  Outcome outcome;
  Translation* const found = find(to, Kind::medium_request, handler, arguments, outcome);
  if (found == nullptr) return outcome;
  PacketFields fields = fields_of(Kind::medium_request, handler, arguments);
  return send_request(to, found->peer->id, fields, payload);
}

Outcome Endpoint::request_now(Index to, uint8_t handler, Bytes payload, std::span<const uint32_t> arguments) {
  if (payload.empty() && send_line(to, handler, arguments)) return Outcome::sent;
  if (handlers_.running() || arguments.size() > kArgumentsMax || payload.size() > kMediumMax) return Outcome::bad_call;
  if (!is_mapped(to) && in_use(to)) return Outcome::not_sent;
  PacketFields fields = fields_of(payload.empty() ? Kind::short_request : Kind::medium_request, handler, arguments);
  if (!in_use(to)) return handlers_.come_back(ReturnStatus::bad_entry, fields.kind, handler, to, arguments);
  Peer& peer = *translations_[to].peer;
  SendOutcome outcome = SendOutcome::no_channel;
  if (peer.open) {
    if (!peer.has_credit()) return Outcome::not_sent;
    const Tag tag = translations_[to].tag;
    peer.add_tag(tag, fields);
    outcome = peers_.send(peer, tag, to, fields, payload);
  }
  if (outcome == SendOutcome::sent) return Outcome::sent;
  if (outcome == SendOutcome::full) return Outcome::not_sent;
  return handlers_.come_back(ReturnStatus::unreachable, fields.kind, handler, to, arguments);
}

// Makes the reservation, if there is room now.
MutableBytes Endpoint::find_room(Index to, Peer& peer, uint32_t bytes, uint8_t count_of_arguments) {
  reserved_.fields = PacketFields({.kind = Kind::medium_request, .count = count_of_arguments});
  peer.add_tag(translations_[to].tag, reserved_.fields);
  const MutableBytes room =
      peer.wire != nullptr ? peer.wire->reserve(reserved_.fields, bytes) : peer.local.reserve(reserved_.fields, bytes);
  if (!room.empty()) {
    reserved_.to = &translations_[to];
    reserved_.index = to;
    reserved_.bytes = bytes;
  }
  return room;
}

MutableBytes Endpoint::reserve_now(Index to, uint32_t bytes, uint8_t count_of_arguments) {
  reserved_.to = nullptr;
  if (handlers_.running() || bytes == 0 || bytes > kMediumMax || count_of_arguments > kArgumentsMax) return {};
  if (!is_open(to) || !has_credit(to)) return {};
  return find_room(to, *translations_[to].peer, bytes, count_of_arguments);
}

MutableBytes Endpoint::reserve(Index to, uint32_t bytes, uint8_t count_of_arguments) {
  reserved_.to = nullptr;
  if (bytes == 0 || bytes > kMediumMax || count_of_arguments > kArgumentsMax) return {};
  Outcome outcome;
  Translation* const found = find(to, Kind::medium_request, 0, {}, outcome);
  if (found == nullptr) return {};
  const uint64_t id = found->peer->id;
  Waiting waiting(*this);
  while (Peer* const peer = wait_credit(to, id)) {
    const MutableBytes room = find_room(to, *peer, bytes, count_of_arguments);
    if (!room.empty()) return room;
    if (!endpoint_.is_open(peer->channel)) break;
    waiting.serve();
  }
  handlers_.come_back(ReturnStatus::unreachable, Kind::medium_request, 0, to, {});
  return {};
}

Outcome Endpoint::commit(uint8_t handler, uint32_t length, std::span<const uint32_t> arguments) {
  Translation* const to = std::exchange(reserved_.to, nullptr);
  const bool as_reserved = length != 0 && length <= reserved_.bytes && arguments.size() == reserved_.fields.count;
  if (to == nullptr || handlers_.running() || !as_reserved) return Outcome::bad_call;
  Peer& peer = *to->peer;
  // The caller may have sent or polled in between, against the rules: then the peer or the credit may be gone.
  if (!peer.open) return handlers_.come_back(ReturnStatus::unreachable, Kind::medium_request, handler, reserved_.index, arguments);
  if (!peer.has_credit()) return Outcome::bad_call;
  reserved_.fields.handler = handler;
  peer.tag_told = to->tag;
  copy_arguments(reserved_.fields, arguments);
  if (peer.wire != nullptr) {
    peers_.record(peer, reserved_.index, reserved_.fields);
    peer.wire->commit(reserved_.fields, length);
    peers_.pump(peer);
    return Outcome::sent;
  }
  if (peer.local.post(reserved_.fields, length) == SendOutcome::sent) {
    peers_.record(peer, reserved_.index, reserved_.fields);
    return Outcome::sent;
  }
  return handlers_.come_back(ReturnStatus::unreachable, Kind::medium_request, handler, reserved_.index, arguments);
}

// ---- long, and get

Outcome Endpoint::request_long(Index to, uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments) {
  if (__builtin_expect(!must_poll() && send_long_line(to, handler, offset, payload, arguments), 1)) {
    ++unpolled_;
    return Outcome::sent;
  }
  if (payload.size() > kLongMax) return Outcome::bad_call;
  Outcome outcome;
  Translation* const found = find(to, Kind::long_request, handler, arguments, outcome);
  if (found == nullptr) return outcome;
  Peer& peer = *found->peer;
  PacketFields fields = fields_of(Kind::long_request, handler, arguments);
  fields.offset = offset;
  fields.total = payload.size();
  if (peer.has_region()) {
    if (const auto why = peer.local.put_all(offset, payload)) return handlers_.come_back(*why, fields.kind, handler, to, arguments);
    return send_request(to, peer.id, fields, {});
  }
  const uint64_t id = peer.id;
  const uint32_t piece = peer.piece_max();
  uint64_t at = 0;
  for (; payload.size() - at > piece; at += piece) {
    PacketFields part({.kind = Kind::long_piece}, offset + at, piece);
    if (send_request(to, id, part, payload.subspan(at, piece)) != Outcome::sent) {
      return handlers_.come_back(ReturnStatus::unreachable, fields.kind, handler, to, arguments);
    }
  }
  return send_request(to, id, fields, payload.subspan(at));
}

Outcome Endpoint::request_long_async(Index to, uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments,
                                     DoneFunction done, void* context) {
  if (handlers_.running() || arguments.size() > kArgumentsMax || payload.size() > kLongMax) return Outcome::bad_call;
  poll();
  if (!is_mapped(to)) {
    if (const auto why = open_meanwhile(to)) return handlers_.come_back(*why, Kind::long_request, handler, to, arguments);
    if (!is_mapped(to)) return Outcome::not_sent;
  }
  Peer& peer = *translations_[to].peer;
  if (!peer.open) return handlers_.come_back(ReturnStatus::unreachable, Kind::long_request, handler, to, arguments);
  if (!peer.has_credit() || transfers_.full()) return Outcome::not_sent;
  Transfer transfer{.peer = &peer, .tag = translations_[to].tag, .index = to, .handler = handler,
                    .count = static_cast<uint8_t>(arguments.size()), .offset = offset, .payload = payload, .at = 0, .done = done,
                    .context = context, .sent = false, .arguments = {}};
  copy_words(transfer.arguments.data(), arguments.data(), transfer.count);
  return transfers_.begin(transfer);
}

Outcome Endpoint::get(Index from, uint8_t handler, uint64_t offset, MutableBytes memory, std::span<const uint32_t> arguments) {
  if (memory.size() > kLongMax) return Outcome::bad_call;
  Outcome outcome;
  Translation* const found = find(from, Kind::get_request, handler, arguments, outcome);
  if (found == nullptr) return outcome;
  Peer& peer = *found->peer;
  if (peer.has_region()) {
    if (const auto why = peer.local.get(offset, memory)) return handlers_.come_back(*why, Kind::get_request, handler, from, arguments);
    dispatcher_.complete_later(peer, handler, arguments, memory);
    return Outcome::sent;
  }
  return get_pieces(from, peer.id, fields_of(Kind::get_request, handler, arguments), offset, memory);
}

// The pieces of one get are sent without other gets in between, so a piece that fails identifies its get.
Outcome Endpoint::get_pieces(Index from, uint64_t id, PacketFields fields, uint64_t offset, MutableBytes memory) {
  Peer* peer = open_peer(from, id);
  for (Waiting waiting(*this); peer != nullptr && peer->in_get; peer = open_peer(from, id)) waiting.serve();
  const uint32_t piece = peer != nullptr && peer->wire != nullptr ? kPieceMax : kLongReplyMax;
  for (uint64_t at = 0; at == 0 || at < memory.size(); at += piece) {
    const uint64_t length = std::min<uint64_t>(piece, memory.size() - at);
    fields.offset = offset + at;
    fields.total = length;
    fields.flags = 0;
    if (peer != nullptr) peer->in_get = true;
    if (send_request(from, id, fields, {}) != Outcome::sent) {
      if (peer = open_peer(from, id); peer != nullptr) peer->in_get = false;
      return Outcome::returned;
    }
    peer = translations_[from].peer;
    const uint32_t number = peer->begun - 1;
    PendingRequest& request = peer->pending(number);
    request.last = at + length == memory.size();
    request.memory = memory;
    request.at = at;
    request.length = static_cast<uint32_t>(length);
    peer->gets[peer->gets_begun++ % kFlowWindow] = number;
    peer->in_get = !request.last;
  }
  return Outcome::sent;
}

// ---- replies

Outcome Token::send(PacketFields& reply, Bytes payload) noexcept {
  if (!can_reply()) return Outcome::bad_call;
  replied_ = true;
  if (peer_->wire != nullptr) {
    peer_->wire->begin(reply, payload);
  } else if (peer_->local.send(reply, payload) != SendOutcome::sent) {
    // The peer is gone or cheats: an honest peer has room.
    ++endpoint_->counters_.lost_replies;
    return Outcome::returned;
  }
  ++endpoint_->counters_.replies;
  return Outcome::sent;
}

uint64_t Token::source() const noexcept { return peer_->id; }
uint64_t Token::tag() const noexcept { return peer_->tag_heard; }
std::string_view Token::source_name() const noexcept { return peer_->name; }
std::string_view Token::source_host() const noexcept { return peer_->host; }
int Token::source_user() const noexcept { return peer_->user; }
int Token::source_process() const noexcept { return peer_->process; }
uint32_t Token::index() const noexcept { return peer_->index; }

Outcome Token::reply_short(uint8_t handler, std::span<const uint32_t> arguments) noexcept {
  if (arguments.size() > kArgumentsMax || !can_reply()) return Outcome::bad_call;
  if (peer_->wire == nullptr && peer_->local.send_line(Kind::short_reply, handler, arguments)) {
    replied_ = true;
    ++endpoint_->counters_.replies;
    return Outcome::sent;
  }
  PacketFields fields = fields_of(Kind::short_reply, handler, arguments);
  return send(fields, {});
}

Outcome Token::reply_medium(uint8_t handler, Bytes payload, std::span<const uint32_t> arguments) noexcept {
  if (arguments.size() > kArgumentsMax || payload.size() > kMediumMax) return Outcome::bad_call;
  PacketFields fields = fields_of(Kind::medium_reply, handler, arguments);
  return send(fields, payload);
}

Outcome Token::reply_long(uint8_t handler, uint64_t offset, Bytes payload, std::span<const uint32_t> arguments) noexcept {
  if (arguments.size() > kArgumentsMax || payload.size() > kLongReplyMax) return Outcome::bad_call;
  PacketFields fields = fields_of(Kind::long_reply, handler, arguments);
  fields.offset = offset;
  fields.total = payload.size();
  return send(fields, payload);
}

}  // namespace unet::am
