// port_sockets.h - the sockets of each port: listeners, with counts of their handshakes, and datagram sockets; used by the stack.
//
// The sockets of a port are in a list: first(port), then the socket's `next`.
#pragma once

#include <vector>

#include "ipstack/sockets/flow_table.h"
#include "ipstack/sockets/slab.h"
#include "ipstack/sockets/socket.h"

namespace unet::sockets {

class ListeningSockets {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  explicit ListeningSockets(Slab<Socket>& sockets) noexcept : sockets_(sockets) {}

  uint32_t first(uint16_t port) const noexcept { return first_[port]; }
  void link(uint32_t index) noexcept;
  void unlink(uint32_t index) noexcept;
  // Chooses a listener for `local` by the number `choice`, among those that take new connections, or among all if none does.
  uint32_t choose(const Address& local, uint32_t choice) const noexcept;
  // Chooses among these listeners in turn.
  uint32_t choose_in_turn(const Address& local) noexcept;

  // Handshakes under way at all listeners; begin_handshake() and end_handshake() also count them at the listener.
  uint32_t handshakes() const noexcept { return handshakes_; }
  void begin_handshake(uint32_t listener) noexcept {
    ++sockets_[listener].listening->embryos;
    ++handshakes_;
  }
  void end_handshake(uint32_t listener) noexcept {
    --sockets_[listener].listening->embryos;
    --handshakes_;
  }
  // Ends the count of a connection that was open before the end of its handshake (TCP Fast Open).
  void end_early(Socket& socket) noexcept;

 private:
  Slab<Socket>& sockets_;
  std::vector<uint32_t> first_ = std::vector<uint32_t>(65'536, kNone);
  uint32_t handshakes_ = 0;
};

class DatagramSockets {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};
  DatagramSockets(Slab<Socket>& sockets, const FlowTable& flows) noexcept : sockets_(sockets), flows_(flows) {}

  uint32_t first(uint16_t port) const noexcept { return first_[port]; }
  void link(uint32_t index) noexcept;
  void unlink(uint32_t index) noexcept;
  // The socket that gets a datagram: a connected one before others, one bound to the address before one at all addresses. A hash of the
  // flow chooses among sockets that share the port and take new flows.
  uint32_t find(const Address& local, const Address& remote) const noexcept;

  // Changes invalidate remembered routes of datagrams, to local peers (DatagramPart::route_peer) and from them (LocalPeer::checked).
  uint64_t generation() const noexcept { return generation_; }
  // Something beside link() and unlink() may lead datagrams elsewhere.
  void change() noexcept { ++generation_; }

 private:
  Slab<Socket>& sockets_;
  const FlowTable& flows_;  // for its keyed hash
  uint64_t generation_ = 0;
  std::vector<uint32_t> first_ = std::vector<uint32_t>(65'536, kNone);
};

}  // namespace unet::sockets
