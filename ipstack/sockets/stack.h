// stack.h - the TCP/IP stack of an application: its sockets, over a network interface's IP channel. A machine without I/O and clock; the
// asynchronous API of ipstack, on which blocking calls are made (calls.h).
//
//   stack.set_time(now)                      before everything else of a turn
//   stack.handle_message(message)            each message that has come
//   stack.run()                              timers, and what there is to send; again when there is room, or next_event() has come
//   stack.connect(...), send(...), ...       at any time; what they have to send leaves at once
//   while (stack.next_change(change)) ...    what became of sockets
//
// Calls return what Linux's return, but an error as -errno: nothing blocks, so what must wait is -EAGAIN or -EINPROGRESS.
//
// A payload byte is copied by TCP: on its way out into a chunk (Connection), from which the network reads it, on its way in from its
// message or, if much has come since, a chunk to the application (gather() saves that one, reserve() the first); by UDP: once into the
// message (reserve() saves it), and into the socket's queue and from there to the application.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ipstack/ip/path_mtu.h"
#include "ipstack/sockets/error_queue.h"
#include "ipstack/sockets/fast_open.h"
#include "ipstack/sockets/flow_table.h"
#include "ipstack/sockets/groups.h"
#include "ipstack/sockets/near_message.h"
#include "ipstack/sockets/neighbours.h"
#include "ipstack/sockets/network.h"
#include "ipstack/sockets/option_sets.h"
#include "ipstack/sockets/ports.h"
#include "ipstack/sockets/slab.h"
#include "ipstack/sockets/socket.h"
#include "ipstack/sockets/socket_tables.h"
#include "ipstack/sockets/stack_counters.h"
#include "ipstack/sockets/stream_messages.h"
#include "ipstack/sockets/stream_options.h"
#include "ipstack/sockets/time_waits.h"
#include "ipstack/sockets/timer_heap.h"
#include "unet/limits.h"
#include "unet/wire/icmp.h"
#include "unet/wire/ip.h"
#include "unet/wire/tcp.h"
#include "unet/wire/udp.h"

namespace unet::sockets {

struct StackOptions {
  uint32_t sockets = 256 * 1024;       // the most there may be; memory is taken as they come
  uint32_t chunk_bytes = 16 * 1024;    // memory of streams: chunks of so many bytes (a power of two),
  uint32_t chunks = 4096;              // so many; at least 1 MiB; pages that are never used are never touched.
  uint32_t lendable_chunks = 256;      // of these, where the network reads what is sent in place; with chunks of 16 KiB a
                                       // segment of 64 KiB has as many pieces as a message may
  uint32_t records = 16 * 1024;        // segments on their way, of all connections
  tcp::Options tcp{.ack_gather = 5 * kMicrosecond};  // of a new socket; its MSS is the path's
  uint32_t half_open_max = 4096;       // connections whose handshake a peer has begun, of all listeners: more get cookies (RFC 4987)
  uint32_t time_waits_max = 256 * 1024;  // connections in TIME-WAIT that nobody has: for a further one the oldest ends
  uint64_t seed = 0;                   // 0: from the kernel
};

// Events, with the values of epoll.
struct Events {
  static constexpr uint32_t kIn = 0x001, kUrgent = 0x002, kOut = 0x004, kError = 0x008, kHangUp = 0x010, kPeerShut = 0x2000;
};

struct Change {
  int socket = -1;
  uint32_t events = 0;
  bool urgent = false;  // its peer has told of urgent data since the last change, as SIGURG says
  bool came = false;    // data, a connection to accept or an error has come since: more than that something is ready, as SIGIO says
};

struct MovedStream;

class Stack {
 public:
  Stack(Network& network, const StackOptions& options, Nanoseconds now);
  // Resets all connections but those that the network interface ends: who wants them to end well closes them, and goes on until idle(). Its
  // claims of ports end with the network.
  ~Stack();
  void forget() noexcept { messages_.forget(), forgets_ = true; }  // it ends without a word, as the network interface is gone
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  // ---- calls of an application. A socket is a small number >= 0.

  int socket(Type type, bool ipv6);
  int bind(int socket, const Address& to);
  // As bind(), of one that shares its port with other processes of the user, and other sockets, that name the same group (IpClaim::group;
  // kIpReusePort is what bind() does with SO_REUSEPORT). A random one is for those who are told it, as a child's process.
  int bind_shared(int socket, const Address& to, uint64_t group);
  // What a process that is to share the socket's port says to bind_shared(); 0: it has none, or nobody can share it.
  uint64_t group_of(int socket) const noexcept;
  // Of one with a group: whether new connections, and datagrams of new flows, may come to it while others of the share take them; true
  // from listen(), of datagrams from bind() on. A process that only holds a listener for its children says no.
  int set_accepts_new_flows(int socket, bool accepts_new_flows);
  int listen(int socket, int backlog);
  int accept(int socket, Address* peer = nullptr);
  int connect(int socket, const Address& to);
  // As connect() with AF_UNSPEC: of a stream the connection is reset, or the listener ends, and the socket may be used anew.
  int disconnect(int socket);
  int64_t send(int socket, Bytes data, bool more = false, bool urgent = false);  // `urgent`: its last byte is (RFC 6093), if all is taken
  // connect() and send() at once, as sendto() with MSG_FASTOPEN: how much left with the SYN or waits behind it; -EINPROGRESS: nothing, as
  // the server's cookie is not known yet, and has been asked for.
  int64_t connect_with(int socket, Bytes data, const Address& to);
  int64_t receive(int socket, MutableBytes data, bool peek = false);
  // The urgent byte, as MSG_OOB has it: beside the stream, where receive() stops before it and then leaves it out, unless urgent_inline is
  // set. -EINVAL: there is none, or it has been read.
  int64_t receive_urgent(int socket, MutableBytes data, bool peek = false);
  bool is_at_urgent(int socket) const noexcept;  // the stream goes on with that byte, or would, as SIOCATMARK says it
  uint32_t to_urgent(int socket) const noexcept;  // how many bytes receive() may give before it stops there; ~0: it does not
  // How a datagram is sent, where its socket's options do not say it. `segment`, not 0: it is several, each of so many bytes but the last.
  // `more`: what is sent next belongs to it, as with MSG_MORE. `from`: one of our addresses, which the socket has, too.
  struct Sending {
    uint16_t segment = 0;
    bool more = false;
    int16_t hop_limit = -1, traffic_class = -1;  // -1: the socket's
    ip::IpAddress from{};
  };
  // Datagrams. With UDP_GRO, `segment` of what came says the same as of what is sent.
  int64_t send_to(int socket, Bytes data, const Address& to, const Sending& how);
  int64_t send_to(int socket, Bytes data, const Address& to, uint16_t segment = 0) {
    return send_to(socket, data, to, Sending{.segment = segment});
  }
  // What is known of a datagram that has come.
  struct Received {
    ip::IpAddress to{};
    uint32_t whole = 0;                // its bytes,
    bool cut = false;                  // for which there was not room
    uint16_t segment = 0;
    Marks marks{};
    Nanoseconds came = 0;              // when the stack got it
    uint32_t lost = 0;                 // how many had been lost for want of room in the socket, modulo 2^32
  };
  int64_t receive_from(int socket, MutableBytes data, Address* from, bool peek = false, Received* what = nullptr);
  // Processes that share a port give one another datagrams: the oldest that waits, until anything else is called; it is not to wait here
  // any longer; one that came to another stack is to wait here.
  std::optional<DatagramQueue::Datagram> oldest(int socket) noexcept;
  void drop_oldest(int socket) noexcept;
  int hand(int socket, const DatagramQueue::Datagram& datagram);
  // Whoever has found nothing, and looks at the network now: the next message to that socket is copied to `room` at once instead of being
  // kept, and told by the next receive() or receive_from(). -1: nobody waits any longer, and `room` is the caller's again.
  void await(int socket, MutableBytes room) noexcept {
    awaited_.socket = socket;
    awaited_.room = room;
    awaited_.came = -1;
  }
  enum class How : uint8_t { read, write, both };
  // An error that a call has been told, which had something better to say, as that some of the data has gone: it is for the next call.
  void return_error(int socket, int error) noexcept;
  // What waits for recvmsg() with MSG_ERRQUEUE, the oldest first. All data is copied as it is sent: a send with MSG_ZEROCOPY has no use for
  // its memory when it returns, and is told so by end_zero_copy(), of sockets that have asked for that.
  std::optional<QueuedError> take_queued_error(int socket);
  void end_zero_copy(int socket);
  int shutdown(int socket, How how);
  int close(int socket);
  // How long who closes it is to wait behind shutdown(), while its connection is_ending(), as SO_LINGER says; 0: not at all.
  Nanoseconds linger_time(int socket) const noexcept;

  // Sends without a copy: room for at most `bytes` in the memory that they leave from; commit() sends as many of them as it says.
  // Of a stream it may be less room than asked for, of a connected datagram socket it is one datagram's. One reservation at a time, which
  // any other call of the stack forgets (then commit() is -EINVAL, and the room is no longer to be written). 0, or an error: -EAGAIN as of
  // send(), -EINVAL while a datagram is gathered; of commit() -EMSGSIZE of one that nobody may cut.
  int reserve(int socket, uint32_t bytes, MutableBytes& room);
  int64_t commit(int socket, uint32_t bytes);

  // A stream's data without a copy, the urgent byte in line: pieces of what is there, valid until consume() or handle_message(); the number
  // of pieces, or an error.
  int gather(int socket, std::span<Bytes> pieces);
  void consume(int socket, uint32_t bytes);

  enum class Option : uint8_t {
    error, type, accepts, reuse_address, only_ipv6, send_buffer, receive_buffer, no_delay, cork, keep_alive, keep_idle, keep_interval,
    keep_count, user_timeout, linger, max_segment, hop_limit, traffic_class, congestion, udp_segment, udp_gro, broadcast, group_loop,
    group_hops, fast_open, fast_open_connect, reuse_port, queue_errors4, queue_errors6, zero_copy, path_discovery4, path_discovery6,
    path_mtu, max_pacing_rate, peek_offset, urgent_inline
  };
  // Values as Linux's; -1 is no error of linger and peek_offset: they are off.
  int set_option(int socket, Option option, int64_t value);
  int64_t option(int socket, Option option);

  // Datagrams to a group come to those who are in it, on all links of the network interface. A source: from which address it sends to
  // groups.
  int join(int socket, const ip::IpAddress& group);
  int leave(int socket, const ip::IpAddress& group);
  int set_group_source(int socket, const ip::IpAddress& address);

  // ---- a stream that moves to another stack of this network interface, as from a process to its child (stack_move.cc)

  // Whether a channel leads to the stack that has that port: 1; 0: it is being made; -1: there is none to be had.
  int seek_neighbour(const Address& to);
  // The stream is to leave. 0: has_agreed() tells when, and nothing is sent until then; 1: the new end calls own_flow() first, and then all
  // that has come is taken in here; or -errno: it cannot move now.
  int begin_move(int socket);
  // Of a socket that shares a port with another stack: what comes of its connection with `remote` comes to this stack. 0, or -errno.
  int own_flow(int socket, const ip::IpAddress& local, const Address& remote);
  // Where bind_shared() of the new end binds.
  Address claimed_at(int socket) const noexcept;
  bool has_agreed(int socket) const noexcept;
  // It stays after all.
  void cancel_move(int socket);
  StreamOptions stream_options(int socket) const;
  void set_stream_options(int socket, const StreamOptions& options);
  // All that import_stream() needs; the socket is no more, and its peer hears nothing of that. It has agreed.
  std::vector<std::byte> export_stream(int socket);
  // The stream goes on at this socket, which is new and keeps its options. The bytes are not believed. 0, or -errno.
  int import_stream(int socket, Bytes moved);

  int local_address(int socket, Address& address) const;
  int remote_address(int socket, Address& address) const;
  uint32_t events(int socket) const noexcept;
  bool is_open(int socket) const noexcept { return owned(socket) != nullptr; }
  // Its place among those of which others are told (unet/socket_table.h); ~0: it has none.
  uint32_t told_at(int socket) const noexcept { return owned(socket) != nullptr ? owned(socket)->told_at : kNone; }
  bool is_ipv6(int socket) const noexcept { return owned(socket) != nullptr && owned(socket)->ipv6; }
  bool is_datagram(int socket) const noexcept { return owned(socket) != nullptr && owned(socket)->type == Type::datagram; }
  // Bytes that may be read, of a datagram socket those of the first datagram, and bytes that were sent and not acknowledged, as FIONREAD
  // and SIOCOUTQ tell them. Of a listener connections: to be accepted, and those whose handshake is under way.
  struct Queued {
    uint32_t receive = 0, send = 0;
  };
  Queued queued(int socket) noexcept;
  const tcp::Connection* connection(int socket) const noexcept;  // of a stream, or nullptr
  tcp::Info info(int socket) const noexcept;  // what can be told of a stream; by a neighbour's channel its traffic and windows

  // The next socket whose events have changed, with all it has now. Edges are told once: take what there is.
  bool next_change(Change& change);

  // ---- the other side

  void set_time(Nanoseconds now) noexcept { now_ = now; }
  bool handle_message(const Message& message);  // true: the stack keeps it in place, until Network::release()
  void handle_message(Bytes message);           // which it never keeps
  uint32_t intake() noexcept { return messages_.intake(now_); }  // how many more it would rather keep, before it is asked again
  void copy_stale() noexcept;                   // when nothing has come
  // A channel to a neighbour is open; the same user's, or another's. `neighbour`: below kNeighboursMax, unused.
  void handle_neighbour(uint32_t neighbour, bool same_user);
  void handle_neighbour_gone(uint32_t neighbour);
  // The answer to Network::ask_neighbour(); kNone: who has the port is not to be had as a neighbour; kUnclaimed: no one has it. `shared`:
  // the next who asks may be led to another, so for one stream alone.
  void handle_neighbour_found(uint8_t protocol, const Address& to, uint32_t neighbour, bool shared = false);
  // True: the stack keeps it in place, until Network::release(). `head`: if it came beside the message, and not in front of its data.
  bool handle_neighbour_message(uint32_t neighbour, const Message& message, Bytes head = {});
  void run();
  // When run() may have something without a message; ~0: never. 0: it waits for room in the network.
  Nanoseconds next_event() const noexcept {
    const Nanoseconds first = std::min(timers_.first(), time_waits_.first());
    return waits_for_chunks() ? std::min(first, now_ + kMillisecond) : first;
  }
  bool wants_room() const noexcept {
    return !due_.empty() || !owed_.empty() || !held_.empty() || (!starved_.empty() && chunks_.may_send());
  }
  bool is_due() const noexcept { return wants_room() || waits_for_chunks() || next_event() <= now_; }  // run() has something now
  // No connection is left that has to end yet; TIME-WAIT does not count, and neither does what the network interface ends for a process
  // that is gone: a close of which all data is acknowledged.
  bool idle() const noexcept;

  uint32_t sockets() const noexcept { return slab_.size(); }
  size_t changes() const noexcept { return changed_.size(); }  // that next_change() has to look at
  uint64_t datagrams_read() const noexcept { return datagrams_read_; }  // from queues, in which they had waited
  // Connections in TIME-WAIT whose sockets are gone.
  const TimeWaits& time_waits() const noexcept { return time_waits_; }
  template <typename Visit>  // visit(number, const Socket&)
  void for_each(Visit visit) const {
    for (uint32_t i = 0; i < slab_.end(); ++i) {
      if (slab_.has(i)) visit(static_cast<int>(i), slab_[i]);
    }
  }
  const StackCounters& counters() const noexcept { return counters_; }
  const tcp::Counters& tcp_counters() const noexcept { return tcp_counters_; }

  static constexpr uint32_t kNone = ~uint32_t{0}, kUnclaimed = kNone - 1;
  static constexpr uint32_t kNeighboursMax = 1024;

 private:
  static constexpr size_t kOwedMax = 4096;
  // What reserve() has promised.
  struct Reserved {
    int socket = -1;                 // -1: nothing
    uint32_t neighbour = kNone;      // in whose channel the room is
    uint32_t head = 0;               // bytes of the message before the room, of the IP channel
    MutableBytes message{};          // of the IP channel, or of the neighbour's
    uint32_t bytes = 0;
    tcp::ChunkIndex spare = tcp::kNoChunk;
    Departure way{};
  };
  // await(), and what has come.
  struct Awaited {
    int socket = -1;
    int64_t came = -1;               // bytes in `room`; -1: nothing
    MutableBytes room{};
    DatagramQueue::Datagram datagram{};  // if it was one; its payload is no more, but was so long
  };
  // stack.cc
  Socket* owned(int socket) noexcept {
    const auto index = static_cast<uint32_t>(socket);
    return slab_.has(index) && slab_[index].owned ? &slab_[index] : nullptr;
  }
  const Socket* owned(int socket) const noexcept { return const_cast<Stack*>(this)->owned(socket); }
  uint32_t new_socket(Type type, bool ipv6);
  void drop(uint32_t index);
  void note(uint32_t index, bool came = false);  // Change::came
  void list(uint32_t index);
  void make_due(uint32_t index);
  void settle(uint32_t index, bool& full);
  void starve(uint32_t index);
  void feed();
  uint32_t events_of(const Socket& socket) const noexcept;
  uint32_t events_of(uint32_t index) const noexcept;
  int bind_to(int number, const Address& to, uint64_t group);
  bool is_listened_at(const Socket& socket, const ip::IpAddress& host, uint16_t port, uint64_t share) const noexcept;
  int tell_accepts_new_flows(const Socket& socket);
  int bind_free(uint32_t index);
  int take_port(uint32_t index);
  void give_back_port(Socket& socket);
  void give_back_name(Socket& socket);
  bool fits(const Socket& socket, const Address& to) const noexcept;
  bool is_awaited(uint32_t index) const noexcept {
    return awaited_.socket == static_cast<int>(index) && awaited_.came < 0 && !slab_[index].peeks_behind && !slab_[index].urgent;
  }
  int64_t take_awaited() noexcept { return std::exchange(awaited_.came, -1); }
  static Ports::Families families_of(const Socket& socket) noexcept {
    return !socket.ipv6 ? Ports::kIpv4 : socket.only_ipv6 ? Ports::kIpv6 : Ports::kBoth;
  }
  Ports& ports_of(const Socket& socket) noexcept { return socket.type == Type::stream ? tcp_ports_ : udp_ports_; }

  // SO_PEEK_OFF: what a peek leaves out, and how that changes by what is peeked, and by what is read.
  uint32_t peek_offset(uint32_t index) const noexcept { return slab_[index].peeks_behind ? peek_offsets_.at(index) : 0; }
  void set_peek_offset(uint32_t index, std::optional<uint32_t> offset);
  void count_peeked(uint32_t index, size_t bytes) noexcept {
    if (slab_[index].peeks_behind) [[unlikely]] peek_offsets_.at(index) += static_cast<uint32_t>(bytes);
  }
  void count_read(uint32_t index, size_t bytes) noexcept {
    const Socket& socket = slab_[index];
    if (socket.urgent) [[unlikely]] count_read_urgent(index, static_cast<uint32_t>(bytes));
    if (!socket.peeks_behind) [[likely]] return;
    uint32_t& offset = peek_offsets_.at(index);
    offset -= std::min(offset, static_cast<uint32_t>(bytes));
  }
  static size_t copy_behind(Bytes piece, size_t& skip, MutableBytes into) noexcept;

  // stack_urgent.cc
  void note_urgent(uint32_t index, uint32_t before, uint32_t there);
  void forget_urgent(uint32_t index) noexcept;
  void count_read_urgent(uint32_t index, uint32_t bytes) noexcept;
  bool is_passed_over(uint32_t index) const noexcept;
  void leave_out_urgent(uint32_t index);
  MutableBytes room_to_urgent(uint32_t index, MutableBytes room, bool peek, size_t& skip);

  // stack_errors.cc
  void queue_error(uint32_t index, QueuedError error);
  void drop_queued_errors(uint32_t index);
  void handle_datagram_error(const Address& local, const Address& remote, const ip::IpView& packet, const ip::IcmpView& error,
                             DatagramError told, Bytes quoted);
  int fit_path(uint32_t index, Departure& way, uint32_t length);
  int64_t path_mtu(const Socket& socket);

  // paths.cc: which addresses we have, and what way leads where
  bool is_own(const ip::IpAddress& address) const, is_cut_off(const ip::IpAddress& from) const;
  bool source_for(const ip::IpAddress& to, ip::IpAddress& from) const;
  uint32_t mtu_from(const ip::IpAddress& from) const;
  static std::byte* begin_message(MutableBytes room, const ip::IpFields& fields, uint32_t length, uint16_t segment,
                                  uint16_t flags = 0) noexcept;

  // stack_tcp.cc
  void find_flow(uint32_t index, bool in);
  uint32_t flow(const Address& local, const Address& remote) const noexcept { return flow(flows_.hash(local, remote), local, remote); }
  uint32_t flow(uint32_t hash, const Address& local, const Address& remote) const noexcept;
  void make_connection(Socket& socket);
  int connect_again(uint32_t index);
  void forget_connection(uint32_t index);
  void consume_at(uint32_t index, uint32_t bytes);
  void take_name_back(uint32_t index);
  void after(uint32_t index);
  bool send_segments(uint32_t index);
  void hold(uint32_t index);
  void run_held();
  bool send_segment(const Socket* socket, const Address& from, const Address& to, const tcp::Segment& segment,
                    const tcp::Connection* connection, MutableBytes room = {});
  void handle_tcp(const ip::IpView& packet, const IpMessageHeader& header);
  void handle_connection(uint32_t index, const ip::TcpView& segment, uint8_t ecn);
  int take_error(Socket& socket);
  void take_failure(Socket& socket);
  tcp::Sequence initial_sequence(const Address& local, const Address& remote, const std::optional<tcp::Sequence>& begin) const noexcept;
  uint64_t port_offset(const ip::IpAddress& from, const Address& to) const noexcept { return keyed_hash(key_, {from, 0}, to, 3) >> 32; }
  uint32_t timestamp_offset(const Address& local, const Address& remote) const noexcept;

  // stack_time_wait.cc
  void begin_time_wait(uint32_t index);
  void end_time_wait(uint32_t at);
  void run_time_waits();
  bool handle_time_wait(uint32_t hash, const Address& local, const Address& remote, const ip::TcpView& segment,
                        std::optional<tcp::Sequence>& begin);
  bool is_free(const Address& local, const Address& remote) const noexcept;
  void leave_port(uint32_t index);
  void call_again(Socket& socket);
  // Streams that need memory, of which some is back when the network has read it: nobody tells.
  bool waits_for_chunks() const noexcept { return !starved_.empty() && chunks_.has_waiting(); }
  std::optional<tcp::Sequence> replace_time_wait(const Address& local, const Address& remote);

  // stack_listen.cc
  void handle_syn(uint32_t listener, const Address& local, const Address& remote, const ip::TcpView& segment, uint8_t ecn,
                  const std::optional<tcp::Sequence>& begin);
  void send_cookie(const Socket& listener, const Address& local, const Address& remote, const ip::TcpView& segment);
  bool awaits_cookies() const noexcept;
  // `later`: of somebody who was sent one: the first that he has said is lost, or comes yet, and only then he is connected.
  enum class CookieAnswer : uint8_t { none, later, first };
  CookieAnswer answers_cookie(const Address& local, const Address& remote, const ip::TcpView& segment) const noexcept;
  uint32_t& asked_place(const Address& local, const Address& remote) noexcept;
  CookieAnswer overtakes_by_cookie(uint32_t index, const ip::TcpView& segment) const noexcept;
  bool take_cookie(uint32_t listener, const Address& local, const Address& remote, const ip::TcpView& segment);
  static void inherit(Socket& child, const Socket& parent);
  uint32_t make_embryo(uint32_t listener, const Address& local, const Address& remote);
  void embryo_changed(uint32_t index);
  uint32_t listener_at(const Address& local, uint32_t choice) const noexcept;
  uint32_t listener_in_turn(const Address& local) noexcept;
  void end_listener(uint32_t index);

  // stack_reserve.cc
  int reserve_stream(uint32_t index, uint32_t bytes, MutableBytes& room);
  int reserve_near(uint32_t index, uint32_t bytes, MutableBytes& room);
  int reserve_datagram(uint32_t index, uint32_t bytes, MutableBytes& room);
  void forget_reserved() noexcept {
    if (reserved_.socket >= 0) [[unlikely]] drop_reserved();
  }
  void drop_reserved() noexcept;

  // stack_fast_open.cc
  bool begin_fast_open(Socket& socket);
  void learn_fast_open(Socket& socket, const ip::TcpView& answer);
  void answer_fast_open(uint32_t index, const ip::TcpView& segment);
  void end_early(Socket& socket) noexcept;

  // stack_udp.cc
  static uint32_t datagram_max(bool ipv4) noexcept;
  int find_way(Socket& socket, const Sending& how, Departure& way);
  int64_t send_datagram(uint32_t index, Bytes data, const Departure& way);
  int64_t send_by_way(uint32_t index, Bytes data);
  int refuse_datagram(uint32_t index, uint32_t neighbour, uint32_t bytes);
  static std::byte* begin_datagram(MutableBytes room, const Socket& socket, const Departure& way, uint32_t length) noexcept;
  void handle_udp(const ip::IpView& packet, const IpMessageHeader& header);
  uint32_t datagram_socket(const Address& local, const Address& remote) const noexcept;
  void link_datagram(uint32_t index);
  void unlink_datagram(uint32_t index);

  // stack_cork.cc
  int64_t gather_datagram(uint32_t index, Bytes data, bool more);
  int64_t send_gathered(uint32_t index);
  void uncork(uint32_t index);

  // stack_groups.cc
  int take_groups(Socket& socket);
  void give_back_groups(const Socket& socket);
  int take_port_to_send(Socket& socket);
  bool group_conflicts(const Socket& socket, const ip::IpAddress& host, uint16_t port) const noexcept;
  bool is_broadcast(const ip::IpAddress& address) const;
  void deliver(uint32_t index, const DatagramQueue::Datagram& datagram);
  bool deliver_to_all(uint16_t port, const DatagramQueue::Datagram& datagram);

  // stack_icmp.cc
  void handle_icmp(const ip::IpView& packet);
  void handle_connection_error(uint32_t index, const ip::IpAddress& from, const ip::IcmpView& error, Bytes quoted);

  // stack_near.cc: calls of streams between applications of one network interface, and what goes
  void connect_near(uint32_t index, bool joined);
  int64_t send_near(uint32_t index, Bytes data, bool urgent);
  int64_t receive_near(uint32_t index, MutableBytes data, bool peek);
  int gather_near(Socket& socket, std::span<Bytes> pieces);
  void consume_near(uint32_t index, uint32_t bytes);
  void tell_read(uint32_t index);
  void shut_near(uint32_t index);
  void close_near(uint32_t index);
  uint32_t events_near(const Socket& socket) const noexcept;
  int send_datagram_near(const Address& from, const Departure& way, Bytes data);
  bool tell_marks(uint32_t neighbour, Marks marks) noexcept;
  static uint32_t emit_near_datagram(std::byte* at, const Address& from, const Address& to, uint16_t segment) noexcept;
  // stack_neighbours.cc: who they are, and what comes
  Whereabouts& whereabouts(uint8_t protocol, const Address& address);
  std::vector<Whereabouts>::iterator first_place(uint8_t protocol, const Address& address) noexcept;
  Whereabouts* known_place(uint8_t protocol, const Address& address) noexcept;
  void await_neighbour(uint32_t index);
  bool awaits_neighbour(uint32_t index) const noexcept;
  bool after_near(uint32_t index);
  void fall_back(uint32_t index);
  void end_near(uint32_t index, int error);
  void leave_ends(uint32_t index);
  uint32_t begin_beside_near(uint32_t index);
  void drop_piece(const NearPart& part, const NearPart::Piece& piece) noexcept;
  void drop_pieces(NearPart& part) noexcept;
  void copy_out(Neighbour& neighbour);
  void copy_first(NearPart& part);
  void copy_all(NearPart& part);
  void say(uint32_t neighbour, const NearHeader& header);
  void reset_near(const NearPart& part);
  void run_near_timer(uint32_t index);
  bool tell_near(const NearPart& part, uint8_t kind, uint32_t value = 0) noexcept;
  bool open_connection(uint32_t index);
  bool handle_near_data(uint32_t index, const Message& message, uint32_t before, bool urgent);
  void handle_near_open(uint32_t neighbour, Bytes message);
  void handle_near_answer(uint32_t index, Bytes message);
  // stack_move.cc
  bool may_move(const Socket& socket) const noexcept;
  int import_near(uint32_t index, const MovedStream& moved, Bytes unread);
  int import_connection(uint32_t index, const MovedStream& moved, Bytes unread, Bytes unsent);
  void handle_near_move(uint32_t index, uint64_t token);
  void handle_near_resume(uint32_t neighbour, Bytes message);
  bool send_agreed(uint32_t index);
  bool send_resume(uint32_t index);
  void handle_near_datagram(uint32_t neighbour, Bytes message, Bytes data);
  bool judge_datagram(uint32_t neighbour, Bytes message);
  void refuse_way(uint32_t neighbour, const Address& from, const Address& to);
  // stack_table.cc: what others are told of sockets
  void show(uint32_t index);
  void tell_asked();
  bool left_to_interface(uint32_t index) const noexcept;
  // stack_options.cc
  int choose(Socket& socket, Option option, int64_t value, tcp::Options& tcp) noexcept;

  Network& network_;
  const StackOptions options_;
  Nanoseconds now_;
  HashKey key_;
  uint64_t random_;

  tcp::ChunkPool chunks_;
  StreamMessages messages_;
  tcp::RecordPool records_;
  tcp::Counters tcp_counters_;
  const tcp::Resources resources_{chunks_, records_, tcp_counters_};
  StackCounters counters_;
  uint64_t datagrams_read_ = 0;
  OptionSets option_sets_;
  const SharedOptions default_options_;
  Slab<Socket> slab_;
  FlowTable flows_;
  TimeWaits time_waits_;
  TimerHeap timers_;
  Ports tcp_ports_, udp_ports_;
  Groups groups_;
  ip::PathMtu path_mtus_;           // that connections have found, for those that come after them
  ip::PathMtu datagram_paths_;      // that routers have told of datagrams: anybody can who knows both ends of a socket
  std::vector<uint32_t> listeners_ = std::vector<uint32_t>(65'536, kNone), datagrams_ = listeners_;  // the first at that port
  std::map<uint32_t, uint32_t> peek_offsets_;  // of the few sockets that have one
  std::map<uint32_t, ErrorQueue> error_queues_;
  std::map<uint32_t, Urgent> urgents_;
  uint32_t embryos_ = 0;            // connections whose handshake peers have begun
  Nanoseconds cookie_at_ = 0;       // when one was sent last
  static constexpr uint32_t kAskedMax = 4096;
  std::vector<uint32_t> asked_;     // hashes of flows that were sent a cookie, each at its place; empty: none was ever

  FastOpenCookies fast_open_;       // that we give
  FastOpenCache fast_open_cache_;   // that we have been given

  std::vector<Neighbour> neighbours_;
  static constexpr size_t kPlaceWays = 8;  // places that an address may have, by its hash: the oldest of them gives way
  std::vector<Whereabouts> whereabouts_ = std::vector<Whereabouts>(256 * kPlaceWays);
  // Another one whenever datagrams may go another way than they did, to neighbours (DatagramPart::way) or from them (Neighbour::judged).
  uint64_t ways_ = 0;
  static constexpr Nanoseconds kWayFor = kSecond;  // so long addresses and ports of the interface are believed to be whose they were
  std::vector<uint32_t> awaiting_;  // streams that wait to hear whose a port is, and some that do no longer
  uint32_t lives_ = 0;
  bool forgets_ = false;
  Reserved reserved_;
  Awaited awaited_;
  SocketTables tables_;
  uint64_t telling_ = 0;            // SocketTables::asked() that is being answered, from telling_at_ on
  uint32_t telling_at_ = 0;

  std::vector<Bytes> pieces_;       // room for those of one message
  std::vector<uint32_t> due_;       // sockets that may have something to send
  // Streams that have less than a message has room for, which waits for more as long as the network interface has other messages to take.
  struct Held {
    uint32_t index;
    tcp::Sequence from;             // of what waits
  };
  std::vector<Held> held_;
  const bool holds_ = network_.is_polled();
  uint32_t released_ = kNone;       // it is not to be held now
  uint64_t held_until_ = 0;         // Network::taken(): then it has waited for long enough
  std::vector<uint32_t> starved_;   // sockets that wait for chunks: each number once,
  std::vector<bool> starving_;      // be it for a socket that is gone
  std::vector<Owed> owed_;          // to neighbours whose channels had no room
  std::deque<uint32_t> changed_;    // for next_change(): each number once
  std::vector<bool> listed_;        // that are in it, be it for a socket that is gone
};

}  // namespace unet::sockets
