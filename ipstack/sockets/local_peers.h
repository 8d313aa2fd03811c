// local_peers.h - what a stack keeps of the stacks of other applications of its network interface; private to ipstack/sockets.
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "ipstack/sockets/address.h"
#include "ipstack/sockets/datagram_queue.h"
#include "ipstack/sockets/local_peer_message.h"
#include "unet/base/bytes.h"
#include "unet/base/time.h"

namespace unet::sockets {

// The stack of another application, to which a channel leads.
struct LocalPeer {
  // A message that is read in place. Memory of a channel goes back in the order in which messages came: what lies too far behind is
  // copied out, so that one that nobody reads does not stop all others.
  struct Kept {
    uint32_t socket = 0, life = 0;
    uint32_t position = 0;           // Message::position
    uint64_t arrived = 0, bytes = 0;  // of all, with it
  };
  // The head of the last datagram that passed the checks, and the socket that got it. One with the same head needs no checks while the
  // route generation is the same.
  struct CheckedFlow {
    std::array<std::byte, kPeerDatagramHeadMax> head{};
    uint32_t size = 0;               // of the head; 0: there is none
    uint32_t socket = 0, segment = 0;
    Address from{};
    ip::IpAddress to{};
    uint64_t generation = 0;         // as route_generation_
    Nanoseconds until = 0;
  };
  bool open = false, same_user = false;
  uint64_t arrived = 0, bytes = 0;   // that have come
  CheckedFlow checked{};
  HeaderOptions told{}, heard{};     // of datagrams (PeerHeaderOptions)
  std::deque<Kept> kept{};
};
// That a stream has ended, or that there is none.
struct Owed {
  uint32_t local_peer = ~uint32_t{0};
  PeerHeader header{};
  Bytes bytes() const noexcept { return {reinterpret_cast<const std::byte*>(&header), sizeof header}; }
};

}  // namespace unet::sockets
