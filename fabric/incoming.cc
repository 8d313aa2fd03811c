// incoming.cc - see incoming.h.
#include "fabric/incoming.h"

#include <rdma/fi_errno.h>

#include <array>
#include <utility>

#include "fabric/protocol.h"

namespace unet::fabric {

Incoming::Incoming(am::Endpoint& endpoint, Peers& peers, Outbox& outbox) : endpoint_(endpoint), peers_(peers), outbox_(outbox) {
  endpoint_.set_handler(Handlers::kPiece, on_piece, this);
}

void Incoming::answer(const Fetch& fetch, am::Token* token, int error) {
  if (!fetch.is_answered) return;
  outbox_.answer(*fetch.envelope.peer, token, Handlers::kDone, std::array{fetch.envelope.token, static_cast<uint32_t>(error)});
}

void Incoming::ask_pieces(uint32_t token, Fetch& fetch, am::Token* message) {
  if (!fetch.is_answered) return fetch.owner->ask_pieces(fetch, token, message);
  outbox_.answer(*fetch.envelope.peer, message, Handlers::kGo, std::array{fetch.envelope.token, token});
}

void Incoming::fetch(Fetch fetch, am::Token* token) {
  Peer& peer = *fetch.envelope.peer;
  const Envelope& envelope = fetch.envelope;
  const bool is_copied = (envelope.flags & MessageFlags::kPieces) == 0 && peer.memory.is_found();
  uint32_t own = 0;
  Fetch* added = is_copied && is_long(fetch) ? add(peer, own) : nullptr;
  const bool is_shared = added != nullptr;
  // An empty message has no pieces that would end it.
  if (!is_shared && (envelope.length == 0 || (is_copied && peer.memory.read(fetch.to, envelope.address, envelope.length)))) {
    answer(fetch, token, 0);
    return fetch.owner->fetched(fetch, 0);
  }
  if (!is_shared) added = add(peer, own);
  if (added == nullptr) {
    answer(fetch, token, FI_ENOSPC);
    return fetch.owner->fetched(fetch, FI_ENOSPC);
  }
  ++peer.transfers;
  *added = std::move(fetch);
  added->busy = true;
  if (!is_shared) return ask_pieces(own, *added, token);
  added->source = added->envelope.address;
  copies_.push_back(own);
  if (!share(own, *added)) return;
  const uint64_t to = reinterpret_cast<uintptr_t>(added->to.address());
  outbox_.answer(peer, token, Handlers::kShare,
                 std::array{added->envelope.token, own, static_cast<uint32_t>(to), static_cast<uint32_t>(to >> 32)});
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

// Whether the memory of a fetch may still be written; else the fetch ends.
bool Incoming::may_write(uint32_t token, const Fetch& fetch, am::Token* message) {
  if (fetch.owner->may_write(fetch)) return true;
  answer(fetch, message, FI_EKEYREJECTED);
  end(token, FI_ECANCELED);
  return false;
}

// Goes on with a copy. False: the peer writes its part.
bool Incoming::advance(uint32_t token, Fetch& fetch, am::Token* message) {
  if (!may_write(token, fetch, message)) return true;
  switch (fetch.envelope.peer->memory.read_shared(token, fetch.to, fetch.source, fetch.envelope.length, fetch.front)) {
    case Copied::not_yet: return false;
    case Copied::none: ask_pieces(token, fetch, message); return true;
    case Copied::all: break;
  }
  answer(fetch, message, 0);
  end(token, 0);
  return true;
}

void Incoming::copy(uint32_t token, Fetch& fetch, uint64_t address, am::Token& message) {
  fetch.source = address;
  if (!advance(token, fetch, &message)) copies_.push_back(token);
}

// Takes the copies in the order of their messages, as the peer does. Both then work on one message, and neither touches the other's cache
// lines.
void Incoming::progress() {
  for (size_t i = 0; i < copies_.size();) {
    const uint32_t token = copies_[i];
    Fetch* const fetch = fetches_.find(token);
    if (fetch != nullptr && !advance(token, *fetch, nullptr)) {
      ++i;
    } else {
      copies_.erase(copies_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

void Incoming::close(const MemoryRegion& region) noexcept {
  for (const uint32_t token : copies_) {
    if (const Fetch* const fetch = fetches_.find(token); fetch != nullptr && fetch->region == region.serial()) {
      fetch->envelope.peer->memory.stop();
    }
  }
}

void Incoming::on_piece(am::Token& token, void* context) {
  Incoming& incoming = *static_cast<Incoming*>(context);
  if (token.arguments().size() != 3) return;
  Fetch* const fetch = incoming.fetches_.find(token.argument(0));
  if (fetch == nullptr || fetch->envelope.peer != incoming.peers_.sender(token)) return;
  const uint64_t offset = token.wide(1), length = fetch->envelope.length;
  const Bytes payload = token.payload();
  if (offset > length || payload.size() > length - fetch->arrived) return;
  if (!incoming.may_write(token.argument(0), *fetch, &token)) return;
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
