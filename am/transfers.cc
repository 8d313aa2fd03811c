// transfers.cc - asynchronous long requests: poll() sends the rest as credits come back.
#include "am/transfers.h"

namespace unet::am {

Outcome Transfers::begin(Transfer transfer) {
  if (transfer.peer->has_region()) {
    if (const auto why = transfer.peer->local.put_all(transfer.offset, transfer.payload)) {
      return handlers_.come_back(*why, Kind::long_request, transfer.handler, transfer.index, {transfer.arguments.data(), transfer.count});
    }
    transfer.at = transfer.payload.size();
  }
  transfers_.push_back(transfer);
  poll();
  return Outcome::sent;
}

// Sends as much as credits allow; returns true when everything is sent.
bool Transfers::push(Transfer& transfer) {
  Peer& peer = *transfer.peer;
  const uint32_t piece = peer.piece_max();
  while (peer.open && peer.has_credit() && peer.unhandled() < kCreditsMax) {
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

void Transfers::poll() {
  for (Transfer& each : transfers_) each.sent = push(each);
  end_if([](const Transfer& each) { return each.sent || !each.peer->open; });
}

void Transfers::end_all(const Peer& peer) {
  end_if([&](const Transfer& each) { return each.peer == &peer; });
}

template <typename Ends>
void Transfers::end_if(const Ends& ends) {
  for (size_t i = 0; i < transfers_.size();) {
    if (ends(transfers_[i])) {
      end(i);
    } else {
      ++i;
    }
  }
}

// The functions that it calls cannot begin new transfers.
void Transfers::end(size_t index) {
  const Transfer over = transfers_[index];
  transfers_.erase(transfers_.begin() + static_cast<std::ptrdiff_t>(index));
  ++counters_.completed;
  handlers_.call([&] {
    if (over.done != nullptr) over.done(endpoint_, over.context);
  });
  if (!over.sent) {
    handlers_.come_back(ReturnStatus::unreachable, Kind::long_request, over.handler, over.index, {over.arguments.data(), over.count});
  }
}

void Transfers::release_all() noexcept {
  for (const Transfer& each : transfers_) {
    if (each.done != nullptr) handlers_.call([&] { each.done(endpoint_, each.context); });
  }
}

}  // namespace unet::am
