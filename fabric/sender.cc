// sender.cc - see sender.h.
#include "fabric/sender.h"

#include <rdma/fi_errno.h>

#include "fabric/info.h"
#include "fabric/protocol.h"
#include "fabric/receiver.h"

namespace unet::fabric {
namespace {

constexpr size_t kQueuedMax = 64;  // sends that wait for one peer

void put_wide(uint32_t*& to, uint64_t value) noexcept {
  std::memcpy(to, &value, sizeof value);
  to += 2;
}

uint64_t kind_of(const SendCall& call) noexcept { return call.is_tagged ? FI_TAGGED : FI_MSG; }
uint8_t flags_of(const SendCall& call) noexcept {
  const int has_data = (call.flags & FI_REMOTE_CQ_DATA) != 0 ? MessageFlags::kData : 0;
  return static_cast<uint8_t>((call.is_tagged ? MessageFlags::kTagged : 0) | has_data);
}

}  // namespace

Sender::Sender(am::Endpoint& endpoint, Peers& peers, Outgoing& outgoing, const Reports& reports)
    : endpoint_(endpoint), peers_(peers), outgoing_(outgoing), reports_(reports) {
  endpoint_.set_handler(Handlers::kPace, on_pace, this);
}

inline void Sender::succeed(const SendCall& call) const noexcept {
  reports_.succeed(call.flags, {.context = call.context, .flags = FI_SEND | kind_of(call)}, call.is_silent);
}

void Sender::fail(const SendCall& call, int error) const {
  reports_.fail({.context = call.context, .flags = FI_SEND | kind_of(call)}, error);
}

ssize_t Sender::send(const SendCall& call) {
  size_t length = 0;
  for (const iovec& piece : call.pieces) length += piece.iov_len;
  const Peer& peer = *call.peer;
  if (__builtin_expect(!call.is_silent && !reports_.has_room(call.flags), 0)) return -FI_EAGAIN;
  if (__builtin_expect(peer.is_self, 0)) return send_to_self(call, length);
  const bool answered = (call.flags & FI_DELIVERY_COMPLETE) != 0 || ((call.flags & FI_TRANSMIT_COMPLETE) != 0 && peer.over_wire);
  const uint32_t data_words = (call.flags & FI_REMOTE_CQ_DATA) == 0 ? 0 : call.data >> 32 != 0 ? 2 : 1;
  const size_t room = (kLineWords - 1 - (call.is_tagged ? 2 : 0) - data_words) * sizeof(uint32_t);
  if (length <= room && !answered) return send_line(call, length);
  if (length <= peer.part_max() && peer.pace == Pace::early) return send_eager(call, length, answered);
  return send_ready(call, length);
}

ssize_t Sender::queue(const SendCall& call) {
  std::deque<Queued>& queue = queues_[call.peer];
  if (queue.size() >= kQueuedMax) return -FI_EAGAIN;
  Buffer buffer(call.pieces);
  std::unique_ptr<std::byte[]> copy = (call.flags & FI_INJECT) != 0 ? buffer.detach() : nullptr;
  Queued& queued = queue.emplace_back(Queued{call, std::move(buffer), std::move(copy)});
  queued.call.pieces = queued.buffer.pieces();
  call.peer->set_queued(true);
  return 0;
}

void Sender::progress() {
  for (auto at = queues_.begin(); at != queues_.end();) {
    auto& [peer, queue] = *at;
    const int opened = peers_.open(*peer);
    while (!queue.empty() && peer->pace != Pace::none) {
      const ssize_t sent = opened == 0 ? send(queue.front().call) : opened;
      if (sent == -FI_EAGAIN) break;
      if (sent != 0) fail(queue.front().call, static_cast<int>(-sent));
      queue.pop_front();
    }
    if (queue.empty()) peer->set_queued(false);
    at = queue.empty() ? queues_.erase(at) : std::next(at);
  }
}

void Sender::fail_all(Peer& peer, int error) {
  for (const Queued& each : queues_[&peer]) fail(each.call, error);
  queues_.erase(&peer);
  peer.set_queued(false);
}

inline ssize_t Sender::send_line(const SendCall& call, size_t length) {
  std::array<uint32_t, kLineWords> words;
  uint8_t flags = flags_of(call);
  uint32_t* at = &words[1];
  if (call.is_tagged) put_wide(at, call.tag);
  if ((flags & MessageFlags::kData) != 0) {
    if (call.data >> 32 != 0) {
      flags |= MessageFlags::kWide;
      put_wide(at, call.data);
    } else {
      *at++ = static_cast<uint32_t>(call.data);
    }
  }
  auto* const payload = reinterpret_cast<std::byte*>(at);
  const size_t rounded = (length + 3) / 4;
  if (length % 4 != 0) at[rounded - 1] = 0;
  if (__builtin_expect(call.pieces.size() == 1, 1)) {
    copy_small(payload, static_cast<const std::byte*>(call.pieces[0].iov_base), length);
  } else {
    Buffer(call.pieces).read(0, {payload, length});
  }
  words[0] = flags | static_cast<uint32_t>(length) << 8;
  const size_t count = static_cast<size_t>(at - words.data()) + rounded;
  const am::Outcome sent = endpoint_.request_now(call.peer->index, Handlers::kLine, {}, {words.data(), count});
  if (__builtin_expect(sent != am::Outcome::sent, 0)) return outcome(sent);
  succeed(call);
  return 0;
}

ssize_t Sender::send_eager(const SendCall& call, size_t length, bool answered) {
  std::array<uint32_t, 6> words{flags_of(call)};
  if (answered) {
    if (begin(call, false, words[1]) == nullptr) return -FI_EAGAIN;
    words[0] |= MessageFlags::kAnswer;
  }
  uint32_t* at = &words[2];
  put_wide(at, call.tag);
  put_wide(at, call.data);
  am::Outcome sent = am::Outcome::not_sent;
  const am::Index index = call.peer->index;
  if (call.pieces.size() <= 1 || length == 0) {  // nothing can be reserved for no bytes
    const Bytes payload = call.pieces.empty() ? Bytes() : as_bytes(call.pieces[0].iov_base, length);
    sent = endpoint_.request_now(index, Handlers::kEager, payload, words);
  } else if (const MutableBytes room = endpoint_.reserve_now(index, static_cast<uint32_t>(length), words.size()); !room.empty()) {
    Buffer(call.pieces).read(0, room.first(length));
    sent = endpoint_.commit(Handlers::kEager, static_cast<uint32_t>(length), words);
  }
  if (sent == am::Outcome::sent) {
    if (!answered) succeed(call);
  } else if (answered) {
    outgoing_.drop(words[1]);
  }
  return outcome(sent);
}

const Outgoing::Operation* Sender::begin(const SendCall& call, bool copies, uint32_t& token) {
  Outgoing::Operation* const operation = outgoing_.begin(*call.peer, call.pieces, copies, token);
  if (operation == nullptr) return nullptr;
  operation->reports = &reports_;
  operation->context = call.context;
  operation->flags = call.flags;
  operation->kind = FI_SEND | kind_of(call);
  operation->is_silent = call.is_silent;
  return operation;
}

ssize_t Sender::send_ready(const SendCall& call, size_t length) {
  std::array<uint32_t, 10> words{flags_of(call)};
  const Outgoing::Operation* const operation = begin(call, (call.flags & FI_INJECT) != 0, words[5]);
  if (operation == nullptr) return -FI_EAGAIN;
  if (!operation->buffer.is_one_piece()) words[0] |= MessageFlags::kPieces;
  uint32_t* at = &words[1];
  put_wide(at, length);
  put_wide(at, reinterpret_cast<uintptr_t>(operation->buffer.address()));
  at = &words[6];
  put_wide(at, call.tag);
  put_wide(at, call.data);
  const am::Outcome sent = endpoint_.request_now(call.peer->index, Handlers::kReady, {}, words);
  if (sent != am::Outcome::sent) outgoing_.drop(words[5]);
  return outcome(sent);
}

ssize_t Sender::send_to_self(const SendCall& call, size_t length) {
  if (call.peer->unexpected >= kUnexpectedMax) return -FI_EAGAIN;
  Envelope envelope{.peer = call.peer, .tag = call.tag, .data = call.data, .length = length, .flags = flags_of(call)};
  if (length <= kEagerMax && (call.flags & FI_DELIVERY_COMPLETE) == 0) {
    std::array<std::byte, kEagerMax> bytes;
    const Buffer from(call.pieces);
    if (from.is_one_piece()) {
      receiver_->arrive(envelope, as_bytes(from.address(), length), nullptr);
    } else {
      from.read(0, {bytes.data(), length});
      receiver_->arrive(envelope, {bytes.data(), length}, nullptr);
    }
    succeed(call);
    return 0;
  }
  if (begin(call, (call.flags & FI_INJECT) != 0, envelope.token) == nullptr) return -FI_EAGAIN;
  receiver_->announce(envelope, nullptr);
  return 0;
}

void Sender::on_pace(am::Token& token, void* context) {
  Peer* const peer = static_cast<Sender*>(context)->peers_.sender(token);
  if (peer == nullptr || token.arguments().empty() || token.argument(0) > static_cast<uint32_t>(Pace::none)) return;
  peer->set_pace(static_cast<Pace>(token.argument(0)));
}

}  // namespace unet::fabric
