// stream_moves.h - streams that move to another stack of this network interface, as from a process to the child that serves them; part of
// stack.h.
//
// On a local peer's channel the end that moves asks its peer (kMove). The peer agrees (kAgreed) and sends nothing from then on. The channel
// keeps the order, so all that the peer has sent is there with its answer. The new end takes over state and unread bytes, and tells the
// peer by a channel of its own (kResume). A token proves that the stream was given to it. A peer that hears nothing ends the stream.
//
// A connection of TCP shares its port with the new end's stack, which has the network interface send there what comes (own_flow()). Then
// its state leaves (tcp/moved.h). The peer hears nothing of that.
#pragma once

#include <cstddef>
#include <vector>

#include "ipstack/sockets/local_streams.h"
#include "ipstack/sockets/peer_directory.h"
#include "ipstack/sockets/socket_names.h"
#include "ipstack/sockets/stack_core.h"
#include "ipstack/sockets/stream_options.h"
#include "ipstack/sockets/tcp_streams.h"

namespace unet::sockets {

struct MovedStream;

class StreamMoves {
 public:
  StreamMoves(StackCore& core, SocketNames& names, PeerDirectory& directory, TcpStreams& tcp, LocalStreams& local_streams) noexcept
      : core_(core), names_(names), directory_(directory), tcp_(tcp), local_streams_(local_streams) {}

  // Looks for a channel to the stack that has that port. 1: there is one; 0: it is being made; -1: it cannot be had.
  int seek_local_peer(const Address& to);

  // ---- the end that moves

  // Asks for the stream to move. 0: it may when has_agreed(), and sends nothing until then. 1: the new end calls own_flow() first, and then
  // this end takes in all that has come. Else -errno: it cannot move now.
  int begin(int socket);
  bool has_agreed(int socket) const noexcept;
  // Undoes begin().
  void cancel(int socket);
  // The address that the new end gives to Stack::bind_shared().
  Address claimed_at(int socket) const noexcept;
  StreamOptions options(int socket) const;
  // Returns all that import_stream() needs, and ends the socket without a word to its peer, which has agreed (has_agreed()).
  std::vector<std::byte> export_stream(int socket);

  // ---- the new end

  // For a socket that shares a port with another stack: segments of the connection with `remote` come to this stack now. 0, or -errno.
  int own_flow(int socket, const ip::IpAddress& local, const Address& remote);
  void set_options(int socket, const StreamOptions& options);
  // Continues the stream at this new socket, which keeps its options. The bytes are checked. 0, or -errno.
  int import_stream(int socket, Bytes moved);

 private:
  static constexpr uint32_t kNone = StackCore::kNone;

  bool may_move(const Socket& socket) const noexcept;
  int import_local(uint32_t index, const MovedStream& moved, Bytes unread);
  int import_connection(uint32_t index, const MovedStream& moved, Bytes unread, Bytes unsent);

  StackCore& core_;
  SocketNames& names_;
  PeerDirectory& directory_;
  TcpStreams& tcp_;
  LocalStreams& local_streams_;
};

}  // namespace unet::sockets
