// outgoing.cc - see outgoing.h.
#include "fabric/outgoing.h"

#include <rdma/fi_errno.h>

#include <utility>

namespace unet::fabric {

Outgoing::Outgoing(am::Endpoint& endpoint, Peers& peers, MemoryRegions& regions)
    : endpoint_(endpoint), peers_(peers), regions_(regions) {
  endpoint_.set_handler(Handlers::kGo, on_go, this);
  endpoint_.set_handler(Handlers::kDone, on_done, this);
  endpoint_.set_handler(Handlers::kShare, on_share, this);
}

Outgoing::Operation* Outgoing::begin(Peer& peer, std::span<const iovec> pieces, bool copies, uint32_t& token) {
  Operation* const operation = operations_.add(token);
  if (operation == nullptr) return nullptr;
  operation->peer = &peer;
  ++peer.operations;
  operation->buffer = Buffer(pieces);
  if (!copies) return operation;
  operation->copy = operation->buffer.detach();
  ++copies_;
  return operation;
}

bool Outgoing::begin_read(Peer& peer, const iovec& piece, const MemoryRegion& region, uint32_t receiver) {
  if (peer.transfers >= kPeerTransfersMax) return false;
  uint32_t token = 0;
  Operation* const operation = begin(peer, {&piece, 1}, false, token);
  if (operation == nullptr) return false;
  operation->region = region.serial();
  operation->key = region.key;
  ++peer.transfers;
  send_pieces(token, receiver);
  return true;
}

void Outgoing::remove(uint32_t token, const Operation& operation) {
  --operation.peer->operations;
  if (operation.region != 0) --operation.peer->transfers;
  if (operation.copy != nullptr) --copies_;
  operations_.remove(token);
}

void Outgoing::end(uint32_t token, int error) {
  Operation* const operation = operations_.find(token);
  if (operation == nullptr) return;
  if (operation->is_active) std::erase(active_, token);
  if (const Reports* const reports = operation->reports; reports != nullptr) {
    const Completion completion{.context = operation->context, .flags = operation->kind};
    if (error != 0) {
      reports->fail(completion, error);
    } else {
      reports->succeed(operation->flags, completion, operation->is_silent);
    }
  }
  remove(token, *operation);
}

void Outgoing::fail_all(const Peer& peer, int error) {
  std::vector<uint32_t> tokens;
  operations_.for_each([&](uint32_t token, const Operation& operation) {
    if (operation.peer == &peer) tokens.push_back(token);
  });
  for (const uint32_t token : tokens) end(token, error);
}

// ---- answers

// The operation that a message names: it must be one with its sender.
Outgoing::Operation* Outgoing::find(const am::Token& token, uint32_t number) noexcept {
  Operation* const operation = operations_.find(number);
  return operation != nullptr && operation->peer == peers_.sender(token) ? operation : nullptr;
}

void Outgoing::on_go(am::Token& token, void* context) {
  Outgoing& outgoing = *static_cast<Outgoing*>(context);
  if (token.arguments().size() != 2) return;
  const Operation* const operation = outgoing.find(token, token.argument(0));
  if (operation != nullptr && !operation->is_active) outgoing.send_pieces(token.argument(0), token.argument(1));
}

void Outgoing::on_done(am::Token& token, void* context) {
  Outgoing& outgoing = *static_cast<Outgoing*>(context);
  if (token.arguments().size() != 2 || outgoing.find(token, token.argument(0)) == nullptr) return;
  const uint32_t error = token.argument(1);
  outgoing.end(token.argument(0), error <= FI_ERRNO_MAX ? static_cast<int>(error) : FI_EIO);
}

void Outgoing::on_share(am::Token& token, void* context) {
  Outgoing& outgoing = *static_cast<Outgoing*>(context);
  if (token.arguments().size() != 4) return;
  const Operation* const operation = outgoing.find(token, token.argument(0));
  if (operation == nullptr || operation->is_active || !operation->buffer.is_one_piece()) return;
  operation->peer->memory.help(token.argument(1), operation->buffer, token.wide(2));
}

// ---- pieces

void Outgoing::send_pieces(uint32_t token, uint32_t receiver) {
  Operation& operation = *operations_.find(token);
  operation.is_active = true;
  operation.receiver = receiver;
  active_.push_back(token);
}

// A region may be closed while a peer reads it in pieces.
bool Outgoing::is_there(const Operation& operation) noexcept {
  return operation.region == 0 || regions_.find(operation.key, operation.region) != nullptr;
}

// Sends pieces of one operation; false: the channel is full.
bool Outgoing::push(uint32_t token, Operation& operation) {
  const size_t length = operation.buffer.size();
  while (operation.sent < length && is_there(operation)) {
    const size_t piece = std::min<size_t>(operation.peer->part_max(), length - operation.sent);
    const MutableBytes room = endpoint_.reserve_now(operation.peer->index, static_cast<uint32_t>(piece), 3);
    if (room.empty()) return false;
    operation.buffer.read(operation.sent, room.first(piece));
    const uint64_t at = operation.sent;
    const std::array<uint32_t, 3> words{operation.receiver, static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32)};
    if (endpoint_.commit(Handlers::kPiece, static_cast<uint32_t>(piece), words) != am::Outcome::sent) return false;
    operation.sent += piece;
  }
  if (!is_there(operation)) {
    const std::array<uint32_t, 2> words{operation.receiver, FI_EKEYREJECTED};
    if (endpoint_.request_now(operation.peer->index, Handlers::kRefused, {}, words) == am::Outcome::not_sent) return false;
  }
  operation.is_active = false;
  std::erase(active_, token);
  if (operation.region != 0) remove(token, operation);
  return true;
}

void Outgoing::progress() {
  for (const uint32_t token : std::exchange(returned_, {})) end(token, FI_ECONNREFUSED);
  for (size_t i = 0; i < active_.size();) {
    const uint32_t token = active_[i];
    if (!push(token, *operations_.find(token))) ++i;
  }
}

}  // namespace unet::fabric
