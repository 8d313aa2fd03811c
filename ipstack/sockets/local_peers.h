// local_peers.h - the channels to other applications' stacks at the same network interface; they have messages that are read in place, and
// headers that wait to be sent. Used by the stack.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "ipstack/sockets/address.h"
#include "ipstack/sockets/datagram_queue.h"
#include "ipstack/sockets/local_peer_message.h"
#include "ipstack/sockets/local_stream.h"
#include "ipstack/sockets/network.h"
#include "ipstack/sockets/slab.h"
#include "ipstack/sockets/socket.h"
#include "unet/base/bytes.h"
#include "unet/base/time.h"

namespace unet::sockets {

// Makes the header of a message to the peer's end of the stream.
inline PeerHeader header_to(const LocalStream& stream, uint8_t kind) noexcept {
  return {.kind = kind, .socket = stream.peer_socket, .life = stream.peer_life};
}

// The stack of another application, to which a channel leads.
struct LocalPeer {
  // A message that is read in place. Memory of a channel is freed in the order of arrival. A message that is too old is copied out, so that
  // an unread stream does not stop the others.
  struct Kept {
    uint32_t socket = 0, life = 0;
    uint32_t position = 0;           // Message::position
    uint64_t arrived = 0, bytes = 0;  // sums over all messages up to this one
  };
  // The head of the last datagram that passed the checks, and the socket that got it. One with the same head needs no checks while the
  // route generation is the same.
  struct CheckedFlow {
    std::array<std::byte, kPeerDatagramHeadMax> head{};
    uint32_t size = 0;               // of `head`; 0: no flow is remembered
    uint32_t socket = 0, segment = 0;
    Address from{};
    ip::IpAddress to{};
    uint64_t generation = 0;         // as DatagramSockets::generation()
    Nanoseconds until = 0;
  };
  bool open = false, same_user = false;
  uint64_t arrived = 0, bytes = 0;   // sums over all that have arrived
  CheckedFlow checked{};
  HeaderOptions told{}, heard{};     // last options sent and received for datagrams (PeerHeaderOptions)
  std::deque<Kept> kept{};
};

// Writes the head of a datagram to a local peer. Returns its size.
uint32_t emit_local_datagram(std::byte* at, const Address& from, const Address& to, uint16_t segment) noexcept;

class LocalPeers {
 public:
  LocalPeers(Network& network, Slab<Socket>& sockets) noexcept : network_(network), sockets_(sockets) {}

  void open(uint32_t peer, bool same_user);
  bool is_open(uint32_t peer) const noexcept { return peer < peers_.size() && peers_[peer].open; }
  void close(uint32_t peer) noexcept;
  LocalPeer& operator[](uint32_t peer) noexcept { return peers_[peer]; }

  // Counts a stream's message, and copies messages that are now too old out of the channel.
  void count_arrival(uint32_t peer, uint32_t bytes);
  // Adds a message that the socket's stream reads in place, without the first `before` bytes.
  void add_piece(uint32_t index, const Message& message, uint32_t before);
  void drop_piece(const LocalStream& stream, const LocalStream::Piece& piece) noexcept;
  void drop_pieces(LocalStream& stream) noexcept;
  void copy_all(LocalStream& stream);

  // Sends a header now, or when the channel has room.
  void send_or_queue(uint32_t peer, const PeerHeader& header);
  void send_reset(const LocalStream& stream);
  void flush() noexcept;
  bool has_queued() const noexcept { return !queued_.empty(); }
  // False: no room now.
  bool send_header(const LocalStream& stream, uint8_t kind, uint32_t value = 0) noexcept;
  // Call before a datagram. Sends the options if they differ from those of the last datagram. False: no room.
  bool send_header_options(uint32_t peer, HeaderOptions options) noexcept;

 private:
  static constexpr size_t kQueuedMax = 4096;
  // A header that tells that a stream has ended, or does not exist.
  struct Queued {
    uint32_t peer;
    PeerHeader header;
  };
  void copy_out(LocalPeer& peer);
  void copy_first(LocalStream& stream);

  Network& network_;
  Slab<Socket>& sockets_;
  std::vector<LocalPeer> peers_;
  std::vector<Queued> queued_;
};

}  // namespace unet::sockets
