// dispatcher.cc - arrived messages: the fast path of messages in one line, requests, and replies.
#include "am/dispatcher.h"

#include <algorithm>

#include "unet/base/bytes.h"

namespace unet::am {

void Dispatcher::poll_wires(bool empty) {
  const Nanoseconds now = peers_.clock().poll_time();
  peers_.absence().polled(now, empty);
  if (!peers_.clock().take_due(now, empty)) return;
  for (Peer* const peer : peers_.wires()) {
    if (!peer->open) continue;
    peer->wire->handle_timeout(now);
    handle_wire(*peer);
  }
}

void Dispatcher::complete_later(Peer& peer, uint8_t handler, std::span<const uint32_t> arguments, MutableBytes memory) {
  Completion done{.handler = handler, .count = static_cast<uint8_t>(arguments.size()), .peer = &peer, .memory = memory, .arguments = {}};
  copy_words(done.arguments.data(), arguments.data(), done.count);
  completions_.push_back(done);
}

void Dispatcher::complete_gets() {
  // A handler starts no get here, so no completion is added meanwhile.
  for (const Completion& each : completions_) {
    run_get_reply(*each.peer, each.handler, {each.arguments.data(), each.count}, each.memory);
  }
  completions_.clear();
}

// ---- messages

// Returns whether line_ may take the fast path: the peer may send it, and its handler takes it.
inline bool Dispatcher::is_plain(const Peer& peer, const Handler& handler) const noexcept {
  const bool request = is_request(line_.kind);
  const bool is_taken = handler.function != nullptr && handler.takes(line_.count);
  const bool may = request ? peer.may_request && tag_rule_.admits_all() : peer.translations != 0;
  return is_taken && may;
}

// The fast path of a short message in one line. Returns false without effect if the message needs the general path.
inline bool Dispatcher::handle_line(Peer& peer, const Message& message) {
  if (__builtin_expect(message.kind != MessageKind::message || !parse_line(message.bytes(), line_), 0)) return false;
  const Handler& handler = handlers_[line_.handler];
  if (__builtin_expect(!is_plain(peer, handler) || !peer.local.take_credits(line_.handled), 0)) return false;
  run_line(peer, handler, {});
  return true;
}

// The fast path of a long request with its bytes in the segment already.
inline bool Dispatcher::handle_long_line(Peer& peer, const Message& message) {
  if (__builtin_expect(message.kind != MessageKind::message || !parse_long_line(message.bytes(), line_), 0)) return false;
  const Handler& handler = handlers_[line_.handler];
  if (__builtin_expect(!is_plain(peer, handler) || segment_.outside(line_.offset, line_.total), 0)) return false;
  if (__builtin_expect(!peer.local.take_credits(line_.handled), 0)) return false;
  run_line(peer, handler, segment_.part(line_.offset, line_.total));
  return true;
}

inline void Dispatcher::run_line(Peer& peer, const Handler& handler, Bytes payload) {
  Token token(endpoint_, peer, line_, payload);
  handlers_.run(handler, token);
  if (is_request(line_.kind) && !token.replied_) peers_.handled(peer);
}

void Dispatcher::handle_local(Peer& peer, const Message& message) {
  if (__builtin_expect(handle_line(peer, message), 1)) return channels_.release(message);
  if (handle_long_line(peer, message)) return channels_.release(message);
  PacketFields fields;
  Bytes payload;
  if (__builtin_expect(message.kind != MessageKind::message || parse_local(message.bytes(), fields, payload) != PacketError::none, 0)) {
    ++counters_.malformed;
  } else if (__builtin_expect(!peer.local.take_credits(fields.handled), 0)) {
    ++counters_.bad_credit;
  } else if (fields.kind != Kind::ack) {
    dispatch(peer, fields, payload);
  } else {
    handlers_.note_credits();
  }
  channels_.release(message);
}

void Dispatcher::receive_wire(Peer& peer, const Message& message) {
  const Nanoseconds now = peers_.clock().now();
  peers_.absence().found(now);
  peer.wire->receive(message, now, peers_.absence().time());
  handle_wire(peer);
}

void Dispatcher::handle_wire(Peer& peer) {
  Bytes payload;
  handlers_.note_credits();
  while (const PacketFields* const fields = peer.wire->next(payload)) dispatch(peer, *fields, payload);
  peers_.pump(peer);
}

void Dispatcher::dispatch(Peer& peer, const PacketFields& fields, Bytes payload) {
  if (is_request(fields.kind)) {
    if (__builtin_expect(peer.may_request, 1)) return dispatch_request(peer, fields, payload);
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
std::optional<ReturnStatus> Dispatcher::refusal_of(const Peer& peer, const PacketFields& fields, Bytes payload) const noexcept {
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

void Dispatcher::dispatch_request(Peer& peer, const PacketFields& fields, Bytes payload) {
  if (__builtin_expect((fields.flags & (PacketFlags::kTag | PacketFlags::kName)) != 0, 0)) {
    if ((fields.flags & PacketFlags::kTag) != 0) peer.tag_heard = fields.tag;
    if ((fields.flags & PacketFlags::kName) != 0) {
      take_introduction(peer, fields, payload);
      return peers_.handled(peer);
    }
  }
  Token token(endpoint_, peer, fields, payload);
  if (const auto why = refusal_of(peer, fields, payload); __builtin_expect(why.has_value(), 0)) {
    ++counters_.refused;
    // The last part of a long message is refused for the same reason, so report only that.
    if (fields.kind != Kind::long_piece) refuse(token, *why);
  } else if (fields.kind == Kind::get_request) {
    PacketFields reply({.kind = Kind::long_reply, .flags = PacketFlags::kGet}, fields.offset, fields.total);
    token.send(reply, segment_.part(fields.offset, fields.total));
  } else {
    if (is_long(fields.kind)) token.payload_ = segment_.deposit(fields, payload);
    if (fields.kind != Kind::long_piece) handlers_.run(handlers_[fields.handler], token);
  }
  if (!token.replied_) peers_.handled(peer);
}

void Dispatcher::refuse(Token& token, ReturnStatus why) noexcept {
  const PacketFields& refused = token.fields_;
  PacketFields reply({.kind = Kind::returned, .handler = refused.handler, .count = refused.count}, static_cast<uint64_t>(why),
                     static_cast<uint64_t>(refused.kind));
  copy_words(reply.arguments.data(), refused.arguments.data(), refused.count);
  token.send(reply, {});
}

void Dispatcher::take_introduction(Peer& peer, const PacketFields& fields, Bytes payload) {
  std::string name(reinterpret_cast<const char*>(payload.data()), std::min<size_t>(payload.size(), kNameMax + 1));
  if (fields.kind != Kind::medium_request || !control::valid_name(name)) {
    ++counters_.malformed;
    return;
  }
  if (peer.name.empty() && !peer.host.empty()) peer.name = name + '@' + peer.host;
}

// ---- replies of peers

// Our error handler learns that the request gets no reply. A reply cannot be returned to the peer.
void Dispatcher::reject_reply(const Peer& peer, const PacketFields& fields, MutableBytes payload) {
  ++counters_.bad_reply;
  const bool get = (fields.flags & PacketFlags::kGet) != 0;
  handlers_.come_back(ReturnStatus::reply_rejected, get ? Kind::get_request : fields.kind, fields.handler, peer.index,
                      {fields.arguments.data(), fields.count}, get ? payload : MutableBytes());
}

void Dispatcher::dispatch_reply(Peer& peer, const PacketFields& fields, Bytes payload) {
  if (fields.kind == Kind::long_reply && (segment_.outside(fields.offset, fields.total) || payload.size() != fields.total)) {
    return reject_reply(peer, fields);
  }
  const MutableBytes where = fields.kind == Kind::long_reply
                                 ? segment_.deposit(fields, payload)
                                 : MutableBytes(const_cast<std::byte*>(payload.data()), payload.size());
  run_reply(peer, fields, where);
}

void Dispatcher::run_reply(Peer& peer, const PacketFields& fields, MutableBytes payload) {
  const Handler& handler = handlers_[fields.handler];
  if (handler.function == nullptr || !handler.takes(fields.count)) return reject_reply(peer, fields, payload);
  Token token(endpoint_, peer, fields, payload);
  handlers_.run(handler, token);
}

// Takes a piece of a get. We know ourselves where it belongs.
void Dispatcher::take_get(Peer& peer, const PacketFields& fields, Bytes payload) {
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

void Dispatcher::end_get(Peer& peer) {
  const PendingRequest request = peer.oldest_get();
  ++peer.gets_answered;
  if (!request.last) return;
  const std::span<const uint32_t> arguments(request.arguments.data(), request.count);
  if (const auto failed = std::exchange(peer.get_failed, std::nullopt)) {
    handlers_.come_back(*failed, Kind::get_request, request.handler, request.index, arguments, request.memory);
    return;
  }
  run_get_reply(peer, request.handler, arguments, request.memory);
}

void Dispatcher::run_get_reply(Peer& peer, uint8_t handler, std::span<const uint32_t> arguments, MutableBytes memory) {
  const auto count = static_cast<uint8_t>(arguments.size());
  PacketFields fields({.kind = Kind::long_reply, .handler = handler, .count = count, .flags = PacketFlags::kGet});
  copy_words(fields.arguments.data(), arguments.data(), count);
  run_reply(peer, fields, memory);
}

void Dispatcher::take_returned(Peer& peer, const PacketFields& fields) {
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
