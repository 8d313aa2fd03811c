// local_streams.h - streams between applications of one network interface: no TCP, but the channel of a local peer; used by the stack,
// which checks the socket.
//
// A payload byte is copied once into the channel and once out of it. Calls return what Linux's return, but an error as -errno. A call or a
// message may end the socket's life.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ipstack/sockets/local_peer_message.h"
#include "ipstack/sockets/local_peers.h"
#include "ipstack/sockets/local_stream.h"
#include "ipstack/sockets/peer_directory.h"
#include "ipstack/sockets/reservation.h"
#include "ipstack/sockets/socket_names.h"
#include "ipstack/sockets/stack_core.h"
#include "ipstack/sockets/tcp_streams.h"

namespace unet::sockets {

class LocalStreams {
 public:
  LocalStreams(StackCore& core, SocketNames& names, LocalPeers& peers, PeerDirectory& directory, TcpStreams& tcp) noexcept
      : core_(core), names_(names), peers_(peers), directory_(directory), tcp_(tcp) {}

  // ---- calls

  // The socket knows both ends, and the remote one is of this network interface. True: the stream calls a local peer, or waits for the
  // answer which peer has the port; if the answer is that none has, it uses TCP. False: no local peer has the port.
  bool connect(uint32_t index);
  int64_t send(uint32_t index, Bytes data, bool urgent);
  int64_t receive(uint32_t index, MutableBytes data, bool peek);
  int gather(const Socket& socket, std::span<Bytes> pieces);
  void consume(uint32_t index, uint32_t bytes);
  int reserve(uint32_t index, uint32_t bytes, Reservation& reserved, MutableBytes& room);
  void commit(uint32_t index, uint32_t bytes);
  // Nothing is to be sent behind what was sent.
  void shut_down(uint32_t index);
  // The application is gone. What it has not read resets the stream, as of TCP (RFC 9293, 3.6.1).
  void close(uint32_t index);
  // Resets the stream. The socket still has it.
  void disconnect(uint32_t index);
  // The socket has no stream any longer; nothing of it is sent.
  void forget(Socket& socket);

  // ---- what goes

  // Tells the peer what it is to know, now or when there is room.
  void flush(uint32_t index) {
    if (!try_flush(index)) core_.make_due(index);
  }
  void run_timer(uint32_t index);
  void process_due(uint32_t index);

  // ---- what comes

  // Stack::handle_local_peer_found(), of a port of TCP. `shared`: the answer is for one stream alone.
  void handle_found(const Address& to, uint32_t local_peer, bool shared);
  void handle_peer_gone(uint32_t local_peer);
  // A message of an open channel that is of no datagram. True: it stays in place until Network::release().
  bool handle_message(uint32_t local_peer, const Message& message, Bytes head);
  // A local peer sends a SYN between the ends of the stream. Returns the socket that takes the SYN, or kNone.
  uint32_t handle_syn(uint32_t index);

  // A further number for PeerHeader::life.
  uint32_t next_life() noexcept { return ++lives_; }

 private:
  static constexpr uint32_t kNone = StackCore::kNone, kUnclaimed = PeerDirectory::kUnclaimed;

  // False: no room for all of it.
  bool try_flush(uint32_t index);
  void tell_read(uint32_t index);
  void release_flow(uint32_t index);
  void fall_back(uint32_t index);
  void end(uint32_t index, int error);
  void drop(uint32_t index);

  // local_stream_messages.cc
  void await_peer(uint32_t index);
  bool awaits_peer(uint32_t index) const noexcept;
  void handle_open(uint32_t local_peer, Bytes message);
  void handle_answer(uint32_t index, Bytes message);
  bool handle_data(uint32_t index, const Message& message, uint32_t before, bool urgent);
  // A stream that moves: the end that stays (stream_moves.h has the other).
  void handle_move(uint32_t index, uint64_t token);
  void handle_resume(uint32_t local_peer, Bytes message);
  bool send_agreed(uint32_t index);
  bool send_resume(uint32_t index);

  StackCore& core_;
  SocketNames& names_;
  LocalPeers& peers_;
  PeerDirectory& directory_;
  TcpStreams& tcp_;                 // takes the streams that a peer refuses
  std::vector<uint32_t> awaiting_;  // streams that wait for an answer of the directory, and some that no longer do
  uint32_t lives_ = 0;
};

}  // namespace unet::sockets
