// peer_directory.cc - the cache of answers which local peer has a port.
#include "ipstack/sockets/peer_directory.h"

#include <algorithm>

#include "unet/wire/ip.h"

namespace unet::sockets {
namespace {

constexpr Nanoseconds kNegativeLifetime = 100 * kMillisecond;  // a port without a local peer is asked for again after this

}  // namespace

std::vector<PeerDirectory::Entry>::iterator PeerDirectory::first_way(uint8_t protocol, const Address& address) noexcept {
  const size_t set = flows_.hash(address, {{}, protocol}) % (entries_.size() / kWays);
  return entries_.begin() + static_cast<ptrdiff_t>(set * kWays);
}

PeerDirectory::Entry* PeerDirectory::find(uint8_t protocol, const Address& address) noexcept {
  const auto first = first_way(protocol, address);
  const auto at = std::find_if(first, first + kWays, [&](const Entry& each) {
    return each.protocol == protocol && each.address == address;
  });
  return at == first + kWays ? nullptr : &*at;
}

const PeerDirectory::Entry& PeerDirectory::look_up(uint8_t protocol, const Address& address, Nanoseconds now) {
  Entry* known = find(protocol, address);
  if (known != nullptr && (known->local_peer != kNone || known->asked || now < known->until)) return *known;
  if (known == nullptr) {
    // Newer entries are in front of older ones.
    const auto first = first_way(protocol, address);
    std::rotate(first, first + (kWays - 1), first + kWays);
    known = &*first;
  }
  Entry& entry = *known;
  const bool shared = entry.protocol == protocol && entry.address == address && entry.shared;
  entry = {address, protocol, false, shared, kNone, now + kNegativeLifetime};
  entry.asked = network_.ask_local_peer(protocol, address);
  return entry;
}

bool PeerDirectory::answer(uint8_t protocol, const Address& address, uint32_t local_peer, bool shared, Nanoseconds now) noexcept {
  shared = shared && protocol == ip::Protocol::kTcp;
  Entry* const entry = find(protocol, address);
  if (entry == nullptr) return shared;
  // A missing channel to one member of a share says nothing about the others.
  shared = shared || (entry->shared && local_peer == kNone);
  entry->asked = false;
  entry->shared = shared;
  entry->local_peer = local_peer == kUnclaimed || shared ? kNone : local_peer;
  // A stream asks again: a client that is refused until its server has come must not use TCP then.
  const bool again = shared || (local_peer == kUnclaimed && protocol == ip::Protocol::kTcp);
  entry->until = again ? now : now + kNegativeLifetime;
  return shared;
}

void PeerDirectory::forget(uint32_t local_peer) noexcept {
  for (Entry& each : entries_) {
    if (each.local_peer == local_peer) each = {};
  }
}

}  // namespace unet::sockets
