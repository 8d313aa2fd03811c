// endpoint_transfer.cc - asynchronous long requests: poll() sends the rest as credits come back.
#include <algorithm>

#include "am/endpoint.h"

namespace unet::am {
namespace {

constexpr size_t kTransfersMax = 256;                      // per endpoint
constexpr uint32_t kTransferCredits = kFlowWindow * 3 / 4;  // a peer's credits that transfers may take; a call that waits for a credit gets
                                                            // one of the rest

}  // namespace

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
  if (!peer.has_credit() || transfers_.size() >= kTransfersMax) return Outcome::not_sent;
  Transfer transfer{.peer = &peer, .tag = translations_[to].tag, .index = to, .handler = handler,
                    .count = static_cast<uint8_t>(arguments.size()), .offset = offset, .payload = payload, .at = 0, .done = done,
                    .context = context, .sent = false, .arguments = {}};
  copy_words(transfer.arguments.data(), arguments.data(), transfer.count);
  return begin_transfer(transfer);
}

Outcome Endpoint::begin_transfer(const Transfer& given) {
  Transfer transfer = given;
  if (transfer.peer->has_region()) {
    if (const auto why = transfer.peer->local.put_all(transfer.offset, transfer.payload)) {
      return handlers_.come_back(*why, Kind::long_request, transfer.handler, transfer.index, {transfer.arguments.data(), transfer.count});
    }
    transfer.at = transfer.payload.size();
  }
  transfers_.push_back(transfer);
  turn_transfers();
  return Outcome::sent;
}

// Sends as much as credits allow; returns true when everything is sent.
bool Endpoint::push_transfer(Transfer& transfer) {
  Peer& peer = *transfer.peer;
  const uint32_t piece = peer.piece_max();
  while (peer.open && peer.has_credit() && peer.unhandled() < kTransferCredits) {
    const uint64_t rest = transfer.payload.size() - transfer.at;
    const bool last = rest <= piece;
    PacketFields fields({.kind = Kind::long_piece}, transfer.offset + transfer.at, piece);
    if (last) {
      fields = PacketFields({.kind = Kind::long_request, .handler = transfer.handler, .count = transfer.count}, transfer.offset,
                            transfer.payload.size());
      copy_words(fields.arguments.data(), transfer.arguments.data(), transfer.count);
    }
    peer.add_tag(transfer.tag, fields);
    const Bytes part = transfer.payload.subspan(transfer.at, last ? rest : piece);
    if (peers_.send(peer, transfer.tag, transfer.index, fields, part) != SendOutcome::sent) return false;
    transfer.at += last ? rest : piece;
    if (last) return true;
  }
  return false;
}

void Endpoint::turn_transfers() {
  for (Transfer& each : transfers_) each.sent = push_transfer(each);
  for (size_t i = 0; i < transfers_.size();) {
    if (transfers_[i].sent || !transfers_[i].peer->open) {
      end_transfer(i);
    } else {
      ++i;
    }
  }
}

// The functions that it calls cannot begin new transfers.
void Endpoint::end_transfer(size_t index) {
  const Transfer over = transfers_[index];
  transfers_.erase(transfers_.begin() + static_cast<std::ptrdiff_t>(index));
  ++counters_.completed;
  handlers_.call([&] {
    if (over.done != nullptr) over.done(*this, over.context);
  });
  if (!over.sent) {
    handlers_.come_back(ReturnStatus::unreachable, Kind::long_request, over.handler, over.index, {over.arguments.data(), over.count});
  }
}

void Endpoint::end_transfers(const Peer& peer) {
  for (size_t i = 0; i < transfers_.size();) {
    if (transfers_[i].peer == &peer) {
      end_transfer(i);
    } else {
      ++i;
    }
  }
}

}  // namespace unet::am
