// receiver.cc - see receiver.h.
#include "fabric/receiver.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include "fabric/info.h"
#include "fabric/protocol.h"

namespace unet::fabric {
namespace {

constexpr uint64_t kEarlyMax = 2 * 1024 * 1024;         // bytes of one peer's unexpected messages, before it is asked for rendezvous
constexpr uint64_t kEarlyAllMax = 64 * 1024 * 1024;     // the same limit for all peers together
constexpr uint32_t kLate = 2 * am::kFlowWindow;         // messages that a peer may send before it hears of its pace

bool is_tagged(const Envelope& envelope) noexcept { return (envelope.flags & MessageFlags::kTagged) != 0; }

// Two loads: one of both words may lie across two stores by which the message was just copied, and would wait for these.
uint64_t wide_at(std::span<const uint32_t> words, size_t at) noexcept {
  return __atomic_load_n(&words[at], __ATOMIC_RELAXED) | uint64_t{__atomic_load_n(&words[at + 1], __ATOMIC_RELAXED)} << 32;
}

}  // namespace

Receiver::Receiver(am::Endpoint& endpoint, Peers& peers, Outbox& outbox, Outgoing& outgoing, Incoming& incoming, const Reports& reports)
    : endpoint_(endpoint), peers_(peers), outbox_(outbox), outgoing_(outgoing), incoming_(incoming), reports_(reports) {
  endpoint_.set_handler(Handlers::kLine, on_line, this);
  endpoint_.set_handler(Handlers::kEager, on_eager, this);
  endpoint_.set_handler(Handlers::kReady, on_ready, this);
}

// ---- delivery: all of it is part of the handler of a message in one line

// Reserves the part of the buffer that a message gets, and returns its offset. A receive leaves the engine with its last message.
inline size_t Receiver::reserve(Posted& receive, const Envelope& envelope) noexcept {
  Matcher& engine = matcher(is_tagged(envelope));
  ++receive.under_way;
  const size_t offset = receive.used;
  receive.used += std::min<uint64_t>(envelope.length, receive.buffer.size() - offset);
  const bool is_last = (receive.flags & FI_MULTI_RECV) == 0 || receive.buffer.size() - receive.used < least_room_;
  if (is_last && receive.is_posted) engine.remove(receive);
  return offset;
}

[[gnu::always_inline]] inline Completion Receiver::completion_of(const Posted& receive, const Envelope& envelope, size_t length) noexcept {
  const bool tagged = is_tagged(envelope);
  return {.context = receive.context,
          .flags = FI_RECV | (tagged ? FI_TAGGED : FI_MSG) | ((envelope.flags & MessageFlags::kData) != 0 ? FI_REMOTE_CQ_DATA : 0),
          .length = length,
          .buffer = receive.buffer.address(),
          .data = envelope.data,
          .tag = envelope.tag,
          .source = envelope.peer != nullptr ? peers_.number_of(*envelope.peer) : FI_ADDR_NOTAVAIL};
}

// Ends the transfer of one message into `length` bytes at `offset` of a receive's buffer.
void Receiver::complete(Posted& receive, const Envelope& envelope, size_t offset, size_t length, int error) {
  Completion completion = completion_of(receive, envelope, length);
  --receive.under_way;
  const bool ends = !receive.is_posted && receive.under_way == 0;
  if (__builtin_expect((receive.flags & FI_MULTI_RECV) != 0, 0)) {
    completion.buffer = static_cast<std::byte*>(receive.buffer.address()) + offset;
    if (ends) completion.flags |= FI_MULTI_RECV;
  }
  if (__builtin_expect(error == 0 && length == envelope.length, 1)) {
    reports_.succeed(receive.flags, completion);
  } else {
    const Completion failed = completion;  // the other one can then be built in registers
    reports_.fail(failed, error != 0 ? error : FI_ETRUNC, static_cast<size_t>(envelope.length) - length);
  }
  if (!ends) return;
  --posted_;
  receives_.give(receive);
}

[[gnu::always_inline]] inline void Receiver::deliver(Posted& receive, const Envelope& envelope, Bytes payload, am::Token* token) {
  const size_t offset = reserve(receive, envelope);
  const size_t length = receive.buffer.write(offset, payload);
  if (__builtin_expect((envelope.flags & MessageFlags::kAnswer) != 0, 0)) answer_done(envelope, token, 0);
  complete(receive, envelope, offset, length, 0);
}

[[gnu::always_inline]] inline void Receiver::accept(const Envelope& envelope, Bytes payload, am::Token* token) {
  if (Posted* const receive = matcher(is_tagged(envelope)).match(envelope.peer, envelope.tag); __builtin_expect(receive != nullptr, 1)) {
    return deliver(*receive, envelope, payload, token);
  }
  store(envelope, payload, token);
}

// ---- messages of peers: each word is checked before its use

void Receiver::on_line(am::Token& token, void* context) {
  Receiver& receiver = *static_cast<Receiver*>(context);
  const auto words = token.arguments();
  Peer* const peer = receiver.peers_.sender(token);
  if (__builtin_expect(peer == nullptr || words.empty(), 0)) return;
  Envelope envelope{.peer = peer, .length = words[0] >> 8 & 0xFF, .flags = static_cast<uint8_t>(words[0] & 0x07)};
  const size_t tag_words = is_tagged(envelope) ? 2 : 0;
  const size_t data_words = (envelope.flags & MessageFlags::kData) == 0 ? 0 : (envelope.flags & MessageFlags::kWide) != 0 ? 2 : 1;
  const size_t head = 1 + tag_words + data_words;
  if (__builtin_expect(words.size() < head || words.size() - head != (envelope.length + 3) / 4, 0)) return;
  if (tag_words != 0) envelope.tag = wide_at(words, 1);
  if (data_words != 0) envelope.data = data_words == 2 ? wide_at(words, 1 + tag_words) : words[1 + tag_words];
  receiver.accept(envelope, as_bytes(words.data() + head, envelope.length), &token);
}

void Receiver::on_eager(am::Token& token, void* context) {
  Receiver& receiver = *static_cast<Receiver*>(context);
  const auto words = token.arguments();
  Peer* const peer = receiver.peers_.sender(token);
  if (peer == nullptr || words.size() != 6) return;
  const Envelope envelope{.peer = peer, .tag = (words[0] & MessageFlags::kTagged) != 0 ? wide_at(words, 2) : 0, .data = wide_at(words, 4),
                          .length = token.payload().size(), .token = words[1],
                          .flags = static_cast<uint8_t>(words[0] & MessageFlags::kKnown)};
  receiver.arrive(envelope, token.payload(), &token);
}

void Receiver::on_ready(am::Token& token, void* context) {
  Receiver& receiver = *static_cast<Receiver*>(context);
  const auto words = token.arguments();
  Peer* const peer = receiver.peers_.sender(token);
  if (peer == nullptr || words.size() != 10) return;
  const Envelope envelope{.peer = peer, .tag = (words[0] & MessageFlags::kTagged) != 0 ? wide_at(words, 6) : 0, .data = wide_at(words, 8),
                          .length = wide_at(words, 1), .address = wide_at(words, 3), .token = words[5],
                          .flags = static_cast<uint8_t>(words[0] & MessageFlags::kKnown)};
  if (envelope.length <= kMessageMax) receiver.announce(envelope, &token);
}

// ---- matching

void Receiver::arrive(const Envelope& envelope, Bytes payload, am::Token* token) { accept(envelope, payload, token); }

void Receiver::announce(const Envelope& envelope, am::Token* token) {
  Matcher& engine = matcher(is_tagged(envelope));
  if (Posted* const receive = engine.match(envelope.peer, envelope.tag)) return fetch(*receive, envelope, token);
  add(envelope, true, token);
}

// Stores an unexpected message, and tells its sender to slow down if there are many. nullptr: the sender does not.
Arrived* Receiver::add(const Envelope& envelope, bool is_announced, am::Token* token) {
  Peer& peer = *envelope.peer;
  if (peer.unexpected >= kUnexpectedMax + kLate) return nullptr;
  Arrived& message = messages_.take();
  message.envelope = envelope;
  message.is_announced = is_announced;
  matcher(is_tagged(envelope)).add(message);
  ++peer.unexpected;
  if (!is_announced && envelope.length > sizeof message.line) {
    peer.early_bytes += envelope.length;
    early_bytes_ += envelope.length;
  }
  const Pace pace = pace_of(peer, 1);
  if (pace > peer.told && token != nullptr && token->can_reply()) {
    peer.told = pace;
    token->reply_short(Handlers::kPace, std::array{static_cast<uint32_t>(pace)});
  }
  return &message;
}

// The pace for what is stored; with `part` 4 for four times as much.
Pace Receiver::pace_of(const Peer& peer, uint64_t part) const noexcept {
  if (peer.unexpected >= kUnexpectedMax / part) return Pace::none;
  return peer.early_bytes > kEarlyMax / part || early_bytes_ > kEarlyAllMax ? Pace::announced : Pace::early;
}

void Receiver::store(const Envelope& envelope, Bytes payload, am::Token* token) {
  std::unique_ptr<std::byte[]> bytes;
  if (payload.size() > sizeof Arrived::line) bytes = std::make_unique_for_overwrite<std::byte[]>(payload.size());
  Arrived* const message = add(envelope, false, token);
  if (message == nullptr) return;
  message->payload = std::move(bytes);
  if (!payload.empty()) std::memcpy(message->payload != nullptr ? message->payload.get() : message->line, payload.data(), payload.size());
}

// The message is no longer in an engine.
void Receiver::forget(Arrived& message) noexcept {
  Peer& peer = *message.envelope.peer;
  --peer.unexpected;
  if (message.payload != nullptr) {
    peer.early_bytes -= message.envelope.length;
    early_bytes_ -= message.envelope.length;
    message.payload.reset();
  }
  if (const Pace pace = pace_of(peer, 4); pace < peer.told) {
    peer.told = pace;
    outbox_.answer(peer, nullptr, Handlers::kPace, std::array{static_cast<uint32_t>(pace)});
  }
  message.is_lost = false;
  messages_.give(message);
}

void Receiver::discard(Arrived& message) {
  if (message.is_announced || (message.envelope.flags & MessageFlags::kAnswer) != 0) answer_done(message.envelope, nullptr, 0);
  forget(message);
}

// Gives a message that has arrived to a receive.
void Receiver::take(Posted& receive, Arrived& message) {
  if (message.is_announced) {
    fetch(receive, message.envelope, nullptr);
  } else {
    deliver(receive, message.envelope, message.bytes(), nullptr);
  }
  forget(message);
}

// ---- bytes that are fetched

void Receiver::fetch(Posted& receive, const Envelope& envelope, am::Token* token) {
  const size_t offset = reserve(receive, envelope);
  const size_t room = receive.used - offset;
  if (envelope.peer->is_self) {
    size_t at = 0;
    for (const iovec& piece : outgoing_.buffer_of(envelope.token).pieces()) {
      if (at < room) receive.buffer.write(offset + at, as_bytes(piece.iov_base, std::min(piece.iov_len, room - at)));
      at += piece.iov_len;
    }
    outgoing_.end(envelope.token, 0);
    return complete(receive, envelope, offset, room, 0);
  }
  // A receive for several messages has its buffer in one piece.
  const bool is_part = (receive.flags & FI_MULTI_RECV) != 0 || (receive.buffer.is_one_piece() && room != receive.buffer.size());
  Buffer to = is_part ? receive.buffer.part(offset, room) : Buffer(receive.buffer.pieces());
  incoming_.fetch(
      {.owner = this, .envelope = envelope, .is_answered = true, .to = std::move(to), .receive = &receive, .offset = offset}, token);
}

void Receiver::fetched(const Fetch& fetch, int error) {
  const size_t room = std::min<uint64_t>(fetch.to.size(), fetch.envelope.length);
  complete(*fetch.receive, fetch.envelope, fetch.offset, error == 0 ? room : 0, error);
}

void Receiver::answer_done(const Envelope& envelope, am::Token* token, int error) {
  if (envelope.peer->is_self) return outgoing_.end(envelope.token, error);
  outbox_.answer(*envelope.peer, token, Handlers::kDone, std::array{envelope.token, static_cast<uint32_t>(error)});
}

// ---- calls of the program

inline Posted& Receiver::begin(const ReceiveCall& call) {
  Posted& receive = receives_.take();
  copy_words(&receive.selector, &call.selector, sizeof call.selector);
  receive.buffer = call.pieces.size() == 1 ? Buffer(call.pieces[0].iov_base, call.pieces[0].iov_len) : Buffer(call.pieces);
  receive.context = call.context;
  receive.flags = call.flags;
  receive.used = 0;
  receive.under_way = 0;
  receive.is_posted = false;
  ++posted_;
  return receive;
}

ssize_t Receiver::post(const ReceiveCall& call) {
  if (__builtin_expect(posted_ >= kReceiveSize, 0)) return -FI_EAGAIN;
  Posted& receive = begin(call);
  Matcher& engine = matcher(call.is_tagged);
  if (engine.arrived().empty()) {
    engine.add(receive);
    return 0;
  }
  if ((call.flags & FI_MULTI_RECV) == 0) {
    Arrived* const message = engine.match(call.selector);
    if (message == nullptr) {
      engine.add(receive);
    } else {
      engine.remove(*message);
      take(receive, *message);
    }
    return 0;
  }
  // A receive for several messages stays posted while messages are given to it: a last one takes it away.
  engine.add(receive);
  while (receive.is_posted) {
    Arrived* const message = engine.match(call.selector);
    if (message == nullptr) break;
    engine.remove(*message);
    take(receive, *message);
  }
  return 0;
}

ssize_t Receiver::peek(const ReceiveCall& call) {
  Matcher& engine = matcher(call.is_tagged);
  Arrived* message = engine.match(call.selector);
  const uint64_t kind = call.is_tagged ? FI_TAGGED : FI_MSG;
  if (message == nullptr) {
    reports_.fail({.context = call.context, .flags = FI_RECV | kind, .tag = call.selector.tag}, FI_ENOMSG);
    return 0;
  }
  Posted looked;
  looked.context = call.context;
  Completion completion = completion_of(looked, message->envelope, message->envelope.length);
  if ((call.flags & FI_CLAIM) != 0) {
    engine.claim(*message, call.context);
  } else if ((call.flags & FI_DISCARD) != 0) {
    engine.remove(*message);
    discard(*message);
  }
  reports_.succeed(call.flags, completion);
  return 0;
}

ssize_t Receiver::take_claimed(const ReceiveCall& call) {
  Arrived* const message = matcher(call.is_tagged).take_claimed(call.context);
  if (message == nullptr) return -FI_EINVAL;
  if (message->is_lost) {
    reports_.fail({.context = call.context, .flags = FI_RECV | (call.is_tagged ? FI_TAGGED : FI_MSG), .tag = message->envelope.tag},
                  FI_ECONNRESET);
    forget(*message);
    return 0;
  }
  if ((call.flags & FI_DISCARD) != 0) {
    discard(*message);
    reports_.succeed(call.flags, {.context = call.context, .flags = FI_RECV | (call.is_tagged ? FI_TAGGED : FI_MSG)});
    return 0;
  }
  take(begin(call), *message);
  return 0;
}

// Ends a receive that is posted; a buffer with transfers under way ends with them.
void Receiver::end(Posted& receive, int error) {
  if (receive.under_way != 0) return;
  const uint64_t returns = receive.flags & FI_MULTI_RECV;
  const Completion completion{.context = receive.context, .flags = FI_RECV | returns, .buffer = receive.buffer.address(),
                              .tag = receive.selector.tag};
  reports_.fail(completion, error);
  --posted_;
  receives_.give(receive);
}

bool Receiver::cancel(const void* context) {
  for (Matcher* const engine : {&tagged_, &plain_}) {
    Posted* const receive = engine->find(context);
    if (receive == nullptr) continue;
    engine->remove(*receive);
    end(*receive, FI_ECANCELED);
    return true;
  }
  return false;
}

void Receiver::fail_all(const Peer& peer, int error) {
  for (Matcher* const engine : {&tagged_, &plain_}) {
    for (Arrived* each = engine->arrived().first(); each != nullptr;) {
      Arrived& message = *std::exchange(each, each->next);
      if (message.envelope.peer != &peer) continue;
      message.envelope.flags &= static_cast<uint8_t>(~MessageFlags::kAnswer);  // the token means nothing to the next process of this name
      if (!message.is_announced) continue;
      engine->remove(message);
      forget(message);
    }
    for (Arrived* each = engine->claimed().first(); each != nullptr; each = each->next) {
      if (each->envelope.peer != &peer) continue;
      each->envelope.flags &= static_cast<uint8_t>(~MessageFlags::kAnswer);
      if (std::exchange(each->is_announced, false)) each->is_lost = true;
    }
    for (Posted* each = engine->posted().first(); each != nullptr && peer.died;) {
      Posted& receive = *std::exchange(each, each->next);
      if (receive.selector.source != &peer) continue;
      engine->remove(receive);
      end(receive, error);
    }
  }
}

}  // namespace unet::fabric
