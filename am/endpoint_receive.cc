// endpoint_receive.cc - arrived messages: which handler runs, which are refused, and which are returned.
#include <algorithm>

#include "am/endpoint.h"
#include "unet/base/bytes.h"

namespace unet::am {
namespace {

constexpr uint32_t kBatch = 32;          // messages per poll
constexpr uint32_t kLookEvery = 1024;    // polls between two looks for new peers; an empty poll counts kEmptyWeight times
constexpr uint32_t kEmptyWeight = 16;

}  // namespace

// ---- progress

uint32_t Endpoint::poll() {
  if (handlers_.running()) return 0;
  unpolled_ = 0;
  peers_.clock().begin_poll();
  uint32_t count = 0;
  Message message;
  if (endpoint_.receive(message)) {
    do {
      handle(message);
      ++count;
    } while (count < kBatch && endpoint_.receive_next(message));
  } else {
    if (peers_.has_untold()) peers_.tell_credits();
  }
  if (!completions_.empty()) complete_gets();
  if (__builtin_expect(!transfers_.empty(), 0)) transfers_.poll();
  if (!peers_.wires().empty()) turn_wires(count == 0);
  looks_ += count == 0 ? kEmptyWeight : 1;
  if (looks_ >= kLookEvery) look_around();
  return count;
}

// Arrived packets are handled before time-outs.
void Endpoint::turn_wires(bool empty) {
  const Nanoseconds now = peers_.clock().poll_time();
  peers_.absence().polled(now, empty);
  if (!peers_.clock().take_due(now, empty)) return;
  for (Peer* const peer : peers_.wires()) {
    if (!peer->open) continue;
    peer->wire->handle_timeout(now);
    handle_wire(*peer);
  }
}

void Endpoint::complete_gets() {
  // A handler starts no get here, so no completion is added meanwhile.
  for (const Completion& each : completions_) {
    run_get_reply(*each.peer, each.handler, {each.arguments.data(), each.count}, each.memory);
  }
  completions_.clear();
}

// ---- messages

void Endpoint::handle(const Message& message) {
  Peer* peer = peers_.find(message.channel);
  if (__builtin_expect(peer == nullptr, 0)) {
    // A static channel, which we have not seen opening yet.
    look_around();
    peer = peers_.find(message.channel);
    if (peer == nullptr) {
      ++counters_.unknown_channel;
      endpoint_.release(message);
      return;
    }
  }
  if (__builtin_expect(!peer->open, 0)) return endpoint_.release(message);
  if (__builtin_expect(peer->wire == nullptr, 1)) return handle_local(*peer, message);
  const Nanoseconds now = peers_.clock().now();
  peers_.absence().found(now);
  peer->wire->receive(message, now, peers_.absence().time());
  handle_wire(*peer);
}

// Returns whether line_ may take the fast path: the peer may send it, and its handler takes it.
inline bool Endpoint::is_plain(const Peer& peer, const Handler& handler) const noexcept {
  const bool request = is_request(line_.kind);
  const bool is_taken = handler.function != nullptr && handler.takes(line_.count);
  return is_taken && request == (peer.translations == 0) && (!request || tag_rule_.admits_all());
}

// The fast path of a short message in one line. Returns false without effect if the message needs the general path.
inline bool Endpoint::handle_line(Peer& peer, const Message& message) {
  if (__builtin_expect(message.kind != MessageKind::message || !parse_line(message.bytes(), line_), 0)) return false;
  const Handler& handler = handlers_[line_.handler];
  if (__builtin_expect(!is_plain(peer, handler) || !peer.local.take_credits(line_.handled), 0)) return false;
  run_line(peer, handler, {});
  return true;
}

// The fast path of a long request with its bytes in the segment already.
inline bool Endpoint::handle_long_line(Peer& peer, const Message& message) {
  if (__builtin_expect(message.kind != MessageKind::message || !parse_long_line(message.bytes(), line_), 0)) return false;
  const Handler& handler = handlers_[line_.handler];
  if (__builtin_expect(!is_plain(peer, handler) || segment_.outside(line_.offset, line_.total), 0)) return false;
  if (__builtin_expect(!peer.local.take_credits(line_.handled), 0)) return false;
  run_line(peer, handler, segment_.part(line_.offset, line_.total));
  return true;
}

inline void Endpoint::run_line(Peer& peer, const Handler& handler, Bytes payload) {
  Token token(*this, peer, line_, payload);
  handlers_.run(handler, token);
  if (is_request(line_.kind) && !token.replied_) peers_.handled(peer);
}

void Endpoint::handle_local(Peer& peer, const Message& message) {
  if (__builtin_expect(handle_line(peer, message), 1)) return endpoint_.release(message);
  if (handle_long_line(peer, message)) return endpoint_.release(message);
  PacketFields fields;
  Bytes payload;
  if (__builtin_expect(message.kind != MessageKind::message || parse_local(message.bytes(), fields, payload) != PacketError::none, 0)) {
    ++counters_.malformed;
  } else if (__builtin_expect(!peer.local.take_credits(fields.handled), 0)) {
    ++counters_.bad_credit;
  } else if (fields.kind != Kind::ack) {
    dispatch(peer, fields, payload);
  } else if (waiting_ != 0) {
    handlers_.note_progress();  // new credits: a call of another thread may wait for them
  }
  endpoint_.release(message);
}

void Endpoint::handle_wire(Peer& peer) {
  Bytes payload;
  if (waiting_ != 0) handlers_.note_progress();  // new credits: a call of another thread may wait for them
  while (const PacketFields* const fields = peer.wire->next(payload)) dispatch(peer, *fields, payload);
  peers_.pump(peer);
}

void Endpoint::dispatch(Peer& peer, const PacketFields& fields, Bytes payload) {
  if (is_request(fields.kind)) {
    if (__builtin_expect(peer.translations == 0, 1)) return dispatch_request(peer, fields, payload);
    ++counters_.bad_request;  // the peer may not request on a channel that we opened, and gets no credit back
  } else if (__builtin_expect(peer.translations == 0, 0)) {
    ++counters_.bad_reply;  // we have sent this peer no request
  } else if (fields.kind == Kind::returned) {
    take_returned(peer, fields);
  } else if ((fields.flags & PacketFlags::kGet) != 0) {
    take_get(peer, fields, payload);
  } else {
    dispatch_reply(peer, fields, payload);
  }
}

// ---- requests of peers

// Returns why a request is not delivered, nullopt if it is. Checks in the order of AM-2: tag, handler, offset, length.
std::optional<ReturnStatus> Endpoint::refusal_of(const Peer& peer, const PacketFields& fields, Bytes payload) const noexcept {
  if (__builtin_expect(!tag_rule_.admits(peer.tag_heard, peer.wire != nullptr), 0)) return ReturnStatus::bad_tag;
  if (fields.kind != Kind::get_request && fields.kind != Kind::long_piece) {
    const Handler& handler = handlers_[fields.handler];
    if (__builtin_expect(handler.function == nullptr, 0)) return ReturnStatus::bad_handler;
    if (__builtin_expect(!handler.takes(fields.count), 0)) return ReturnStatus::bad_arguments;
  }
  if (__builtin_expect(!has_long_header(fields.kind), 1)) return std::nullopt;
  if (const auto why = segment_.outside(fields.offset, fields.total)) return why;
  const bool fits = payload.size() <= fields.total && (fields.kind != Kind::get_request || fields.total <= kLongReplyMax);
  return fits ? std::nullopt : std::optional(ReturnStatus::bad_length);
}

void Endpoint::dispatch_request(Peer& peer, const PacketFields& fields, Bytes payload) {
  if (__builtin_expect((fields.flags & (PacketFlags::kTag | PacketFlags::kName)) != 0, 0)) {
    if ((fields.flags & PacketFlags::kTag) != 0) peer.tag_heard = fields.tag;
    if ((fields.flags & PacketFlags::kName) != 0) {
      take_introduction(peer, fields, payload);
      return peers_.handled(peer);
    }
  }
  Token token(*this, peer, fields, payload);
  if (const auto why = refusal_of(peer, fields, payload); __builtin_expect(why.has_value(), 0)) {
    ++counters_.refused;
    // The last part of a long message is refused for the same reason, so report only that.
    if (fields.kind != Kind::long_piece) refuse(token, *why);
  } else if (fields.kind == Kind::get_request) {
    PacketFields reply({.kind = Kind::long_reply, .flags = PacketFlags::kGet}, fields.offset, fields.total);
    send_reply(token, reply, segment_.part(fields.offset, fields.total));
  } else {
    if (is_long(fields.kind)) token.payload_ = segment_.deposit(fields, payload);
    if (fields.kind != Kind::long_piece) handlers_.run(handlers_[fields.handler], token);
  }
  if (!token.replied_) peers_.handled(peer);
}

void Endpoint::refuse(Token& token, ReturnStatus why) noexcept {
  const PacketFields& refused = token.fields_;
  PacketFields reply({.kind = Kind::returned, .handler = refused.handler, .count = refused.count}, static_cast<uint64_t>(why),
                     static_cast<uint64_t>(refused.kind));
  copy_words(reply.arguments.data(), refused.arguments.data(), refused.count);
  send_reply(token, reply, {});
}

// ---- replies of peers

// Our error handler learns that the request gets no reply. A reply cannot be returned to the peer.
void Endpoint::reject_reply(const Peer& peer, const PacketFields& fields) {
  ++counters_.bad_reply;
  const Kind kind = (fields.flags & PacketFlags::kGet) != 0 ? Kind::get_request : fields.kind;
  handlers_.come_back(ReturnStatus::reply_rejected, kind, fields.handler, peer.index, {fields.arguments.data(), fields.count});
}

void Endpoint::dispatch_reply(Peer& peer, const PacketFields& fields, Bytes payload) {
  if (fields.kind == Kind::long_reply && (segment_.outside(fields.offset, fields.total) || payload.size() != fields.total)) {
    return reject_reply(peer, fields);
  }
  const MutableBytes where = fields.kind == Kind::long_reply
                                 ? segment_.deposit(fields, payload)
                                 : MutableBytes(const_cast<std::byte*>(payload.data()), payload.size());
  run_reply(peer, fields, where);
}

void Endpoint::run_reply(Peer& peer, const PacketFields& fields, MutableBytes payload) {
  const Handler& handler = handlers_[fields.handler];
  if (handler.function == nullptr || !handler.takes(fields.count)) return reject_reply(peer, fields);
  Token token(*this, peer, fields, payload);
  handlers_.run(handler, token);
}

// Takes a piece of a get. We know ourselves where it belongs.
void Endpoint::take_get(Peer& peer, const PacketFields& fields, Bytes payload) {
  if (fields.kind != Kind::long_reply || peer.gets_answered == peer.gets_begun) {
    ++counters_.bad_reply;
    return;
  }
  const PendingRequest& request = peer.oldest_get();
  if (payload.size() != request.length) {
    ++counters_.bad_reply;
    peer.get_failed = ReturnStatus::reply_rejected;
  } else if (!payload.empty()) {
    copy_bytes(request.memory.data() + request.at, payload.data(), payload.size());
  }
  end_get(peer);
}

void Endpoint::end_get(Peer& peer) {
  const PendingRequest request = peer.oldest_get();
  ++peer.gets_answered;
  if (!request.last) return;
  const std::span<const uint32_t> arguments(request.arguments.data(), request.count);
  if (const auto failed = std::exchange(peer.get_failed, std::nullopt)) {
    handlers_.come_back(*failed, Kind::get_request, request.handler, request.index, arguments);
    return;
  }
  run_get_reply(peer, request.handler, arguments, request.memory);
}

void Endpoint::run_get_reply(Peer& peer, uint8_t handler, std::span<const uint32_t> arguments, MutableBytes memory) {
  const auto count = static_cast<uint8_t>(arguments.size());
  PacketFields fields({.kind = Kind::long_reply, .handler = handler, .count = count, .flags = PacketFlags::kGet});
  copy_words(fields.arguments.data(), arguments.data(), count);
  run_reply(peer, fields, memory);
}

void Endpoint::take_returned(Peer& peer, const PacketFields& fields) {
  if (fields.offset == 0 || fields.offset > kReturnStatusMax || fields.total == 0 || fields.total > uint64_t{kKindMax} ||
      !is_request(static_cast<Kind>(fields.total))) {
    ++counters_.bad_reply;
    return;
  }
  const auto status = static_cast<ReturnStatus>(fields.offset);
  const auto kind = static_cast<Kind>(fields.total);
  if (kind == Kind::get_request) {
    if (peer.gets_answered == peer.gets_begun) {
      ++counters_.bad_reply;
      return;
    }
    peer.get_failed = status;
    end_get(peer);
    return;
  }
  // The handled count tells which of our requests this was.
  const PendingRequest& request = peer.pending(fields.handled - 1);
  const Index index = request.kind == kind && request.handler == fields.handler ? request.index : kNoIndex;
  handlers_.come_back(status, kind, fields.handler, index, {fields.arguments.data(), fields.count});
}

}  // namespace unet::am
