// incoming.cc - see incoming.h.
#include "fabric/incoming.h"

#include <rdma/fi_errno.h>

#include <utility>
#include <vector>

#include "fabric/protocol.h"

namespace unet::fabric {

Incoming::Incoming(am::Endpoint& endpoint, Peers& peers, Outbox& outbox) : endpoint_(endpoint), peers_(peers), outbox_(outbox) {
  endpoint_.set_handler(Handlers::kPiece, on_piece, this);
}

void Incoming::answer(const Fetch& fetch, am::Token* token, int error) {
  if (!fetch.is_answered) return;
  outbox_.answer(*fetch.envelope.peer, token, Handlers::kDone, std::array{fetch.envelope.token, static_cast<uint32_t>(error)});
}

void Incoming::fetch(Fetch fetch, am::Token* token) {
  Peer& peer = *fetch.envelope.peer;
  const uint64_t length = fetch.envelope.length;
  const bool is_copied = (fetch.envelope.flags & MessageFlags::kPieces) == 0 && peer.memory.is_found();
  // An empty message has no pieces that would end it.
  if (length == 0 || (is_copied && peer.memory.read(fetch.to, fetch.envelope.address, length))) {
    answer(fetch, token, 0);
    return fetch.owner->fetched(fetch, 0);
  }
  uint32_t own = 0;
  Fetch* const added = peer.transfers < kPeerTransfersMax ? fetches_.add(own) : nullptr;
  if (added == nullptr) {
    answer(fetch, token, FI_ENOSPC);
    return fetch.owner->fetched(fetch, FI_ENOSPC);
  }
  outbox_.answer(peer, token, Handlers::kGo, std::array{fetch.envelope.token, own});
  ++peer.transfers;
  *added = std::move(fetch);
  added->busy = true;
}

std::optional<uint32_t> Incoming::expect(Fetch fetch) {
  uint32_t token = 0;
  Fetch* const added = fetches_.add(token);
  if (added == nullptr) return std::nullopt;
  ++fetch.envelope.peer->operations;
  *added = std::move(fetch);
  added->busy = true;
  return token;
}

void Incoming::end(uint32_t token, int error) {
  Fetch* const found = fetches_.find(token);
  if (found == nullptr) return;
  const Fetch ended = std::move(*found);
  found->busy = true;
  fetches_.remove(token);
  --(ended.is_answered ? ended.envelope.peer->transfers : ended.envelope.peer->operations);  // begun by fetch(), or by expect()
  ended.owner->fetched(ended, error);
}

bool Incoming::copy(const Peer* peer, uint32_t token, uint64_t address) {
  const Fetch* const fetch = find(peer, token);
  if (fetch == nullptr || !peer->memory.is_found() || !peer->memory.read(fetch->to, address, fetch->envelope.length)) return false;
  end(token, 0);
  return true;
}

void Incoming::on_piece(am::Token& token, void* context) {
  Incoming& incoming = *static_cast<Incoming*>(context);
  if (token.arguments().size() != 3) return;
  Fetch* const fetch = incoming.fetches_.find(token.argument(0));
  if (fetch == nullptr || fetch->envelope.peer != incoming.peers_.sender(token)) return;
  const uint64_t offset = token.wide(1), length = fetch->envelope.length;
  const Bytes payload = token.payload();
  if (offset > length || payload.size() > length - fetch->arrived) return;
  if (!fetch->owner->may_write(*fetch)) {
    incoming.answer(*fetch, &token, FI_EKEYREJECTED);
    return incoming.end(token.argument(0), FI_ECANCELED);
  }
  fetch->to.write(offset, payload);
  fetch->arrived += payload.size();
  if (fetch->arrived < length) return;
  incoming.answer(*fetch, &token, 0);
  incoming.end(token.argument(0), 0);
}

void Incoming::fail_all(const Peer& peer, int error) {
  std::vector<uint32_t> tokens;
  fetches_.for_each([&](uint32_t token, const Fetch& fetch) {
    if (fetch.envelope.peer == &peer) tokens.push_back(token);
  });
  for (const uint32_t token : tokens) end(token, error);
}

}  // namespace unet::fabric
