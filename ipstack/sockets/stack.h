// stack.h - the TCP/IP stack of an application: its sockets, over a network interface's IP channel. A machine without I/O and clock; the
// asynchronous API of ipstack, on which blocking calls are made (calls.h).
//
//   stack.set_time(now)                      first in each poll
//   stack.handle_message(message)            for each message that has come
//   stack.run()                              runs timers and sends; again when there is room, or at next_event()
//   stack.connect(...), send(...), ...       at any time; they send at once
//   while (stack.next_change(change)) ...    what became of sockets
//
// Calls return what Linux's return, but an error as -errno. Nothing blocks: -EAGAIN or -EINPROGRESS instead.
//
// Copies of a payload byte. TCP sends through a chunk, from which the network reads; reserve() saves that copy. TCP receives from the
// message, or from a chunk if much has come since; gather() saves that copy. UDP sends by one copy into the message, which reserve()
// saves, and receives by two, through the socket's queue.
//
// Stack is a router. A call finds the socket and goes to the part that has its kind; a message goes to the part of its protocol. It has one
// function per call that an application may make, about 55, and therefore more functions than other classes. The parts, lowest first, each
// of which knows only those before it:
//   StreamMemory               memory of streams: chunks, and messages that are read in place
//   StackCore                  sockets by number and by flow, clock, timers, queues of sockets with something to do or to report
//   SocketNames                addresses and ports, shares, groups
//   LocalPeers, PeerDirectory  channels to the stacks of other applications, and which of them has which port
//   Datagrams                  datagram sockets
//   TcpStreams                 streams by TCP, TIME-WAIT
//   LocalStreams               streams by a local peer's channel, without TCP
//   Listeners                  handshakes, accept()
//   StreamMoves                streams that move to another stack
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "ipstack/sockets/datagrams.h"
#include "ipstack/sockets/ip_message.h"
#include "ipstack/sockets/listeners.h"
#include "ipstack/sockets/local_peers.h"
#include "ipstack/sockets/local_streams.h"
#include "ipstack/sockets/network.h"
#include "ipstack/sockets/peer_directory.h"
#include "ipstack/sockets/reservation.h"
#include "ipstack/sockets/socket.h"
#include "ipstack/sockets/socket_names.h"
#include "ipstack/sockets/socket_options.h"
#include "ipstack/sockets/stack_core.h"
#include "ipstack/sockets/stack_options.h"
#include "ipstack/sockets/stack_secrets.h"
#include "ipstack/sockets/stream_memory.h"
#include "ipstack/sockets/stream_moves.h"
#include "ipstack/sockets/tcp_streams.h"
#include "unet/wire/ip.h"

namespace unet::sockets {

class Stack {
 public:
  Stack(Network& network, const StackOptions& options, Nanoseconds now);
  // Resets all connections but those that the network interface ends. To end them well, close them and run the stack until idle(). Claims
  // of ports end with the network.
  ~Stack();
  void forget() noexcept { memory_.messages.forget(), forgets_ = true; }  // it ends without a word, as the network interface is gone

  // ---- calls of an application. A socket is a small number >= 0.

  int socket(Type type, bool ipv6);
  int bind(int socket, const Address& to);
  // bind() to a port that is shared with other sockets and processes of the user that name the same group (IpClaim::group). bind() with
  // SO_REUSEPORT names kIpReusePort. A random group is for the processes that are told it, such as a child.
  int bind_shared(int socket, const Address& to, uint64_t group);
  // The group that another process names to share the socket's port; 0: the port cannot be shared.
  uint64_t group_of(int socket) const noexcept;
  // Whether a socket with a group takes new connections and flows while others of the share do. True from listen() on, or bind() for
  // datagrams. A process that only holds a listener for its children says no.
  int set_accepts_new_flows(int socket, bool accepts_new_flows);
  // Before such a listener closes: it gets no new connections, even if no other of the share takes them. Those that it has got may still be
  // accepted.
  int end_new_flows(int listener);
  int listen(int socket, int backlog);
  int accept(int socket, Address* peer = nullptr);
  int connect(int socket, const Address& to);
  // connect() with AF_UNSPEC. A connection is reset, a listener ends, and the socket may be used anew.
  int disconnect(int socket);
  int64_t send(int socket, Bytes data, bool more = false, bool urgent = false);  // `urgent`: its last byte is (RFC 6093), if all is taken
  // connect() and send() at once, as sendto() with MSG_FASTOPEN: how much left with the SYN or waits behind it. -EINPROGRESS: nothing; the
  // SYN asks for the server's cookie, which is not known yet.
  int64_t connect_with(int socket, Bytes data, const Address& to);
  int64_t receive(int socket, MutableBytes data, bool peek = false);
  // The urgent byte, as MSG_OOB has it: beside the stream, where receive() stops before it and then leaves it out, unless urgent_inline is
  // set. -EINVAL: there is none, or it has been read.
  int64_t receive_urgent(int socket, MutableBytes data, bool peek = false);
  // The stream goes on with that byte, or would, as SIOCATMARK says it. Nearly every receive() asks.
  bool is_at_urgent(int socket) const noexcept {
    const Socket* const it = core_.owned(socket);
    return it != nullptr && it->urgent && is_before_urgent(socket);
  }
  uint32_t to_urgent(int socket) const noexcept;  // how many bytes receive() may give before it stops there; ~0: it does not
  using Sending = Datagrams::Sending;
  using Received = Datagrams::Received;
  int64_t send_to(int socket, Bytes data, const Address& to, const Sending& how);
  int64_t send_to(int socket, Bytes data, const Address& to, uint16_t segment = 0) {
    return send_to(socket, data, to, Sending{.segment = segment});
  }
  int64_t receive_from(int socket, MutableBytes data, Address* from, bool peek = false, Received* what = nullptr);
  // For a caller that found nothing and polls the network now: the next message to the socket is copied to `room` at once, and the next
  // receive() or receive_from() returns it. Socket -1 ends that: the stack does not touch `room` any more.
  void await(int socket, MutableBytes room) noexcept {
    core_.awaited.socket = socket;
    core_.awaited.room = room;
    core_.awaited.came = -1;
  }
  enum class How : uint8_t { read, write, both };
  // Gives back an error for the next call to return: this call has something better to say, such as that some data has gone.
  void return_error(int socket, int error) noexcept;
  // The oldest error that waits for recvmsg() with MSG_ERRQUEUE. A send with MSG_ZEROCOPY copies too: its memory is free when it
  // returns, and end_zero_copy() queues that notice for sockets that have asked for it.
  std::optional<QueuedError> take_queued_error(int socket);
  void end_zero_copy(int socket);
  int shutdown(int socket, How how);
  int close(int socket);
  // How long close() waits for the end of the connection (is_ending()), as SO_LINGER says; 0: not at all.
  Nanoseconds linger_time(int socket) const noexcept;

  // Sends without a copy: reserve() gives room for at most `bytes` in the memory that the network reads; commit() sends what was written.
  // A stream may give less room than asked for; a connected datagram socket gives one datagram's. There is one reservation at a time, and
  // any other call of the stack ends it: then commit() is -EINVAL, and the room must not be written. 0, or an error: -EAGAIN as from
  // send(), -EINVAL while a datagram is gathered; from commit() -EMSGSIZE if the path needs a fragment and the socket forbids it.
  int reserve(int socket, uint32_t bytes, MutableBytes& room);
  int64_t commit(int socket, uint32_t bytes);

  // A stream's data without a copy, the urgent byte in line: pieces of what is there, valid until consume() or handle_message(); the number
  // of pieces, or an error.
  int gather(int socket, std::span<Bytes> pieces);
  void consume(int socket, uint32_t bytes);

  using Option = SocketOption;
  // Values as Linux's; -1 is no error of linger and peek_offset: they are off.
  int set_option(int socket, Option option, int64_t value);
  int64_t option(int socket, Option option);

  // A member of a group gets its datagrams from all links of the network interface. The source is the address that the socket sends to
  // groups from.
  int join(int socket, const ip::IpAddress& group);
  int leave(int socket, const ip::IpAddress& group);
  int set_group_source(int socket, const ip::IpAddress& address);

  // Streams that move to another stack of this network interface.
  StreamMoves& moves() noexcept {
    forget_reserved();
    return moves_;
  }

  int local_address(int socket, Address& address) const;
  int remote_address(int socket, Address& address) const;
  // Bits of Events that hold now. next_change() tells of an event that is missing here as soon as it holds.
  uint32_t events(int socket) noexcept;
  bool is_open(int socket) const noexcept { return core_.owned(socket) != nullptr; }
  // The place of its record (unet/socket_table.h); ~0: it has none.
  uint32_t told_at(int socket) const noexcept { return core_.owned(socket) != nullptr ? core_.owned(socket)->told_at : kNone; }
  bool is_ipv6(int socket) const noexcept { return core_.owned(socket) != nullptr && core_.owned(socket)->ipv6; }
  bool is_datagram(int socket) const noexcept {
    const Socket* const it = core_.owned(socket);
    return it != nullptr && it->type == Type::datagram;
  }
  // Bytes that may be read, of a datagram socket those of the first datagram, and bytes that were sent and not acknowledged, as FIONREAD
  // and SIOCOUTQ tell them. For a listener they count connections: `receive` those to be accepted, `send` those with a handshake under way.
  struct Queued {
    uint32_t receive = 0, send = 0;
  };
  Queued queued(int socket) noexcept;
  const tcp::Connection* connection(int socket) const noexcept;  // of a stream, or nullptr
  tcp::Info info(int socket) const noexcept;  // what can be told of a stream; by a local peer's channel its traffic and windows

  // The next socket with changed events, and all its events now. Edges are reported once: take what there is.
  bool next_change(Change& change) { return core_.next_change(change); }

  // ---- the other side

  void set_time(Nanoseconds now) noexcept { core_.now = now; }
  bool handle_message(const Message& message);  // true: the stack keeps it in place, until Network::release()
  void handle_message(Bytes message);           // the stack never keeps it
  uint32_t intake() noexcept { return memory_.messages.intake(core_.now); }  // how many more it would rather keep, before it is asked again
  void copy_stale() noexcept { memory_.copy_stale(); }  // when nothing has come
  // A channel to a local peer is open; the same user's, or another's. `local_peer`: below kLocalPeersMax, unused.
  void handle_local_peer(uint32_t local_peer, bool same_user);
  void handle_local_peer_gone(uint32_t local_peer);
  // The answer to Network::ask_local_peer(). kNone: there is no channel to the owner of the port. kUnclaimed: the port has no owner.
  // `shared`: the port is in a group, and the next question may lead to another member: the answer is for one stream alone.
  void handle_local_peer_found(uint8_t protocol, const Address& to, uint32_t local_peer, bool shared = false);
  // True: the stack keeps it in place, until Network::release(). `head`: if it came beside the message, and not in front of its data.
  bool handle_local_peer_message(uint32_t local_peer, const Message& message, Bytes head = {});
  void run();
  // When run() may have something without a message; ~0: never. 0: it waits for room in the network.
  Nanoseconds next_event() const noexcept {
    const Nanoseconds first = std::min(core_.timers.first(), tcp_.time_waits().first());
    if (has_spare()) return core_.now;
    return tcp_.waits_for_chunks() ? std::min(first, core_.now + kMillisecond) : first;
  }
  bool wants_room() const noexcept {
    return !core_.due.empty() || local_peers_.has_queued() || tcp_.has_held() || tcp_.may_notify_starved();
  }
  bool is_due() const noexcept { return wants_room() || tcp_.waits_for_chunks() || next_event() <= core_.now; }  // run() has something now
  // No connection is left that has to end yet; TIME-WAIT does not count, and neither does what the network interface ends for a process
  // that is gone: a close of which all data is acknowledged.
  bool idle() const noexcept;

  uint32_t sockets() const noexcept { return core_.sockets.size(); }
  size_t changes() const noexcept { return core_.changed.size(); }  // that next_change() has to look at
  Datagrams& datagrams() noexcept { return datagrams_; }
  // Connections in TIME-WAIT without a socket.
  const TimeWaits& time_waits() const noexcept { return tcp_.time_waits(); }
  template <typename Visit>  // visit(number, const Socket&)
  void for_each(Visit visit) const {
    for (uint32_t i = 0; i < core_.sockets.end(); ++i) {
      if (core_.sockets.has(i)) visit(static_cast<int>(i), core_.sockets[i]);
    }
  }
  const StackCounters& counters() const noexcept { return core_.counters; }
  const tcp::Counters& tcp_counters() const noexcept { return memory_.counters; }

  static constexpr uint32_t kNone = ~uint32_t{0}, kUnclaimed = PeerDirectory::kUnclaimed;
  static constexpr uint32_t kLocalPeersMax = 1024;

 private:
  // stack.cc
  void process_due(uint32_t index, bool& full);
  int bind_to(int number, const Address& to, uint64_t group);

  // stack_calls.cc
  int connect_again(uint32_t index);
  void forget_connection(uint32_t index);
  void consume_at(uint32_t index, uint32_t bytes);
  bool is_before_urgent(int number) const noexcept;
  // Ends the reservation: one store, as nearly every call does it. Its chunk stays until the next reserve() or run().
  void forget_reserved() noexcept { reserved_.socket = -1; }
  // The chunk of a reservation that was not committed: run() gives it back, as other streams may wait for it.
  bool has_spare() const noexcept { return reserved_.socket < 0 && reserved_.spare != tcp::kNoChunk; }
  void give_back_spare() noexcept {
    if (reserved_.spare != tcp::kNoChunk) [[unlikely]] memory_.chunks.give_back(std::exchange(reserved_.spare, tcp::kNoChunk));
  }

  // stack_input.cc
  void handle_tcp(const ip::IpView& packet, const IpMessageHeader& header);
  void handle_icmp(const ip::IpView& packet);

  const StackSecrets secrets_;
  StreamMemory memory_;
  StackCore core_;
  SocketNames names_{core_};
  LocalPeers local_peers_{core_.network, core_.sockets};
  PeerDirectory directory_{core_.network, core_.flows};
  Datagrams datagrams_{core_, names_, local_peers_, directory_, secrets_.datagram_paths};
  TcpStreams tcp_{core_, names_, secrets_};
  LocalStreams local_streams_{core_, names_, local_peers_, directory_, tcp_};
  Listeners listeners_{core_, names_, tcp_, local_streams_};
  StreamMoves moves_{core_, names_, directory_, tcp_, local_streams_};

  bool forgets_ = false;
  Reservation reserved_;
};

}  // namespace unet::sockets
