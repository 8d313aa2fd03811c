// tcp_streams.cc - streams: calls of the application, segments that come, and segments that go.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ipstack/sockets/stack.h"
#include "ipstack/tcp/reset.h"
#include "unet/base/bytes.h"
#include "unet/wire/checksum.h"

namespace unet::sockets {
namespace {

int errno_of(tcp::Error error) noexcept {
  switch (error) {
    case tcp::Error::none: return 0;
    case tcp::Error::not_connected: return ENOTCONN;
    case tcp::Error::exists: return EISCONN;
    case tcp::Error::closing: return EPIPE;
    case tcp::Error::refused: return ECONNREFUSED;
    case tcp::Error::reset: return ECONNRESET;
    case tcp::Error::timed_out: return ETIMEDOUT;
    case tcp::Error::aborted: return ECONNABORTED;
    case tcp::Error::unreachable: break;  // errno_of(PathError)
  }
  return EIO;
}

// As Linux's tcp_v4_err() has them.
int errno_of(tcp::PathError error, bool ipv4) noexcept {
  switch (error) {
    case tcp::PathError::none: return 0;
    case tcp::PathError::network_unreachable: return ENETUNREACH;
    case tcp::PathError::host_unreachable:
    case tcp::PathError::time_exceeded: return EHOSTUNREACH;
    case tcp::PathError::parameter_problem: return EPROTO;
    case tcp::PathError::protocol_unreachable: return ENOPROTOOPT;
    case tcp::PathError::port_unreachable: return ECONNREFUSED;
    case tcp::PathError::prohibited: return ipv4 ? EHOSTUNREACH : EACCES;
  }
  return EHOSTUNREACH;
}

bool is_opening(tcp::State state) noexcept { return state == tcp::State::syn_sent || state == tcp::State::syn_received; }

}  // namespace

// The socket must know both its ends.
void Stack::make_connection(Socket& socket) {
  const uint32_t header = socket.remote.host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes;
  // Packets inside this network interface are not cut.
  const bool own = core_.addresses.is_own(socket.remote.host);
  const uint32_t mtu = own ? TcpOutput::kPayloadMax + header + sizeof(ip::TcpHeader) : core_.addresses.mtu_from(socket.local.host);
  tcp::Options options = *socket.tcp.options;
  options.mss = socket.mss(mtu - header - static_cast<uint32_t>(sizeof(ip::TcpHeader)));
  options.default_mss = socket.remote.host.is_ipv4() ? 536 : 1220;
  socket.tcp.options = option_sets_.get(options);
  socket.tcp.connection = std::make_unique<tcp::Connection>(*socket.tcp.options, memory_.resources, socket.local.port);
  const uint32_t path = path_mtus_.mtu(socket.remote.host, core_.now);
  if (own || path < mtu) {
    const uint32_t size = (own ? mtu : path) - header - static_cast<uint32_t>(sizeof(ip::TcpHeader));
    socket.tcp.connection->limit_path(static_cast<uint16_t>(size));
  }
  socket.failed = false;
}

// ---- calls

int Stack::connect(int number, const Address& asked) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  const auto index = static_cast<uint32_t>(number);
  if (socket->listening != nullptr) return -EISCONN;
  Address to = asked;
  if (!socket->fits(to)) return socket->ipv6 ? -ENETUNREACH : -EAFNOSUPPORT;
  if (socket->type == Type::datagram) return datagrams_.connect(index, to);
  if (socket->local_stream != nullptr || socket->has_connection()) return connect_again(index);
  if (to.host.is_unspecified()) {
    const auto own = core_.addresses.first_of(!socket->ipv6);
    if (!own) return -ENETUNREACH;
    to.host = *own;
  }
  if (to.host.is_multicast() || to.host.is_limited_broadcast()) return -ENETUNREACH;
  if (to.port == 0) return -ECONNREFUSED;
  ip::IpAddress from = socket->local.host;
  if (from.is_unspecified() && !core_.addresses.source_for(to.host, from)) return -ENETUNREACH;
  if (from.is_ipv4() != to.host.is_ipv4() || (core_.addresses.is_cut_off(from) && !core_.addresses.is_own(to.host))) return -ENETUNREACH;
  if (!socket->bound) {
    const auto free = [&](uint16_t port) { return is_free({from, port}, to); };
    if (const int error = names_.tcp_ports().take_any(hashes_.port_offset(from, to), free, socket->local.port); error != 0) return -error;
    socket->bound = true;
  } else if (!is_free({from, socket->local.port}, to)) {
    return -EADDRNOTAVAIL;
  }
  socket->local.host = from;
  socket->remote = to;
  socket->error = 0;  // of a connection before, that disconnect() has ended
  socket->moves = 0;
  socket->connecting = true;
  core_.add_flow(index);
  if (core_.addresses.is_own(to.host)) {
    const PeerDirectory::Entry* const known = directory_.find(ip::Protocol::kTcp, to);
    const bool joined = known != nullptr && known->asked;
    const PeerDirectory::Entry& where = directory_.look_up(ip::Protocol::kTcp, to, core_.now);
    if (where.local_peer != kNone || where.asked) {
      connect_local(index, joined);
      return -EINPROGRESS;
    }
  }
  return open_connection(index) ? 0 : -EINPROGRESS;
}

// Returns the result of the call before, once, as Linux does (inet_stream_connect()). After a failure the next call begins anew.
int Stack::connect_again(uint32_t index) {
  Socket& socket = core_.sockets[index];
  if (!socket.connecting || socket.deferred) return -EISCONN;
  const LocalStream* const stream = socket.local_stream.get();
  if (stream != nullptr ? stream->state == LocalStream::State::asking : is_opening(socket.tcp.connection->state())) return -EALREADY;
  socket.connecting = false;
  // A stream that a local peer has opened and ended at once has been connected: what became of it is for the next call.
  const bool opened = stream != nullptr && stream->peer_life != 0;
  if (stream != nullptr ? opened : socket.tcp.connection->state() != tcp::State::closed) return 0;
  const int error = socket.take_error();
  forget_connection(index);
  return error != 0 ? -error : -ECONNABORTED;
}

// A connection that is over: the socket is as it was before connect(), also without a port unless bind() gave it that.
void Stack::forget_connection(uint32_t index) {
  Socket& socket = core_.sockets[index];
  core_.timers.remove(index);
  core_.remove_flow(index);
  if (socket.has_connection()) socket.tcp.connection.reset();
  if (socket.local_stream != nullptr) local_peers_.drop_pieces(*socket.local_stream);
  socket.local_stream.reset();
  core_.positions.forget_urgent(index);
  socket.urgent_news = socket.came = false;
  socket.shut_read = socket.shut_write = socket.fast_open_asked = socket.connecting = socket.deferred = false;
  socket.told = 0;
  socket.remote = {};
  if (!socket.named) {
    names_.give_back(socket);
    socket.local = {};
  }
  core_.show(index);
}

// As Linux's tcp_disconnect().
int Stack::disconnect(int number) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  const auto index = static_cast<uint32_t>(number);
  if (socket->type == Type::datagram) return connect(number, {});
  const uint16_t port = socket->local.port;
  if (socket->listening != nullptr) {
    end_listener(index);
  } else if (socket->local_stream != nullptr) {
    if (socket->local_stream->state != LocalStream::State::closed) socket->error = ECONNRESET;
    // An answer to the stream's question is itself answered by a reset.
    if (socket->local_stream->state == LocalStream::State::open) local_peers_.send_reset(*socket->local_stream);
    forget_connection(index);
  } else if (socket->has_connection()) {
    tcp::Connection& connection = *socket->tcp.connection;
    const tcp::State state = connection.state();
    const bool over = state == tcp::State::closed || state == tcp::State::time_wait || state == tcp::State::closing ||
                      state == tcp::State::last_ack;
    if (!over) socket->error = ECONNRESET;
    connection.abort();
    output_.send_all(index, core_.now);  // without room the peer is reset when it says something
    if (socket->early) names_.listeners().end_early(*socket);
    forget_connection(index);
  }
  socket->local.port = port;  // as Linux goes on to call it, though it may be another's
  core_.show(index);
  core_.notify(index);
  return 0;
}

// TCP's handshake, of a socket that knows both its ends. True: it begins with the first data.
bool Stack::open_connection(uint32_t index) {
  Socket& socket = core_.sockets[index];
  make_connection(socket);
  ++core_.counters.connections_out;
  const auto before = time_waits_.replace(core_.flows.hash(socket.local, socket.remote), socket.local, socket.remote);
  socket.tcp.connection->connect(socket.remote.port, hashes_.initial_sequence(socket.local, socket.remote, core_.now, before), core_.now,
                                  hashes_.timestamp_offset(socket.local, socket.remote));
  socket.deferred = socket.fast_open_connect && fast_open_.begin(socket, core_.now);
  after(index);
  return core_.sockets.has(index) && core_.sockets[index].deferred;
}

void Stack::return_error(int number, int error) noexcept {
  Socket* const socket = core_.owned(number);
  if (socket != nullptr && error != EAGAIN && error != EPIPE) socket->error = error;  // those come again by themselves
}

int64_t Stack::send(int number, Bytes data, bool more, bool urgent) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type == Type::datagram) return datagrams_.send(static_cast<uint32_t>(number), data, more);
  if (socket->error != 0) return -socket->take_error();
  if (socket->local_stream != nullptr) {
    socket->told = static_cast<uint16_t>(socket->told & ~Events::kOut);
    return send_local(static_cast<uint32_t>(number), data, urgent);
  }
  if (!socket->has_connection() || socket->shut_write) return -EPIPE;
  tcp::Connection& connection = *socket->tcp.connection;
  socket->told = static_cast<uint16_t>(socket->told & ~Events::kOut);  // told again when there is room
  if (is_opening(connection.state()) && !socket->deferred && !connection.is_early()) return -EAGAIN;
  const bool opens = socket->deferred;
  socket->deferred = false;
  const tcp::Transferred sent = connection.send(data);
  if (sent.bytes != 0) connection.expect_more(more || sent.bytes < data.size());  // what found no room follows
  if (sent.error != tcp::Error::none) return -EPIPE;
  if (urgent && sent.bytes != 0 && sent.bytes == data.size()) [[unlikely]] connection.mark_urgent();
  if (sent.bytes < data.size() && connection.writable() != 0) core_.starved.push(static_cast<uint32_t>(number));  // no chunk was to be had
  if (sent.bytes == 0 && !opens) return data.empty() ? 0 : -EAGAIN;
  after(static_cast<uint32_t>(number));
  return sent.bytes == 0 && !data.empty() ? -EAGAIN : int64_t{sent.bytes};
}

int64_t Stack::receive(int number, MutableBytes data, bool peek) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type == Type::datagram) return datagrams_.receive(static_cast<uint32_t>(number), data, nullptr, peek, nullptr);
  if (socket->local_stream != nullptr) return receive_local(static_cast<uint32_t>(number), data, peek);
  if (!socket->has_connection()) return socket->error != 0 ? -socket->take_error() : -ENOTCONN;
  tcp::Connection& connection = *socket->tcp.connection;
  size_t skip = peek ? core_.positions.peek_offset(static_cast<uint32_t>(number)) : 0;
  if (socket->urgent) [[unlikely]] {
    if (data.empty() || !core_.positions.is_urgent_next(static_cast<uint32_t>(number), skip)) {
      data = core_.positions.room_to_urgent(static_cast<uint32_t>(number), data, skip);
    } else if (peek) {
      ++skip;
    } else {
      consume_at(static_cast<uint32_t>(number), 1);
    }
  }
  if (connection.readable() <= skip) {
    if (connection.readiness().ended) return 0;  // as on Linux also if it was reset after that: a send returns the error
    if (socket->error != 0) return -socket->take_error();
    const tcp::State state = connection.state();
    if (socket->deferred) {  // the application waits for the peer's data first: the SYN leaves now
      socket->deferred = false;
      after(static_cast<uint32_t>(number));
      return -EAGAIN;
    }
    if (is_opening(state)) return -EAGAIN;
    return socket->shut_read || state == tcp::State::closed || connection.readiness().ended ? 0 : -EAGAIN;
  }
  if (peek) {
    size_t copied = 0;
    std::vector<Bytes>& pieces = output_.pieces();
    const uint32_t count = connection.gather(pieces);
    for (uint32_t i = 0; i < count && copied < data.size(); ++i) copied += copy_behind(pieces[i], skip, data.subspan(copied));
    core_.positions.count_peeked(static_cast<uint32_t>(number), copied);
    return static_cast<int64_t>(copied);
  }
  const uint32_t bytes = connection.receive(data).bytes;
  core_.positions.count_read(static_cast<uint32_t>(number), bytes);
  core_.make_due(static_cast<uint32_t>(number));  // the window may be told; with what the application sends next, if it does
  return bytes;
}

int64_t Stack::send_to(int number, Bytes data, const Address& to, const Sending& how) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type != Type::datagram) return socket->has_connection() ? -EISCONN : -ENOTCONN;
  return datagrams_.send_to(static_cast<uint32_t>(number), data, to, how);
}

int64_t Stack::receive_from(int number, MutableBytes data, Address* from, bool peek, Received* what) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type != Type::datagram) return receive(number, data, peek);
  return datagrams_.receive(static_cast<uint32_t>(number), data, from, peek, what);
}

int Stack::gather(int number, std::span<Bytes> pieces) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->local_stream != nullptr && socket->local_stream->unread != 0) return gather_local(*socket, pieces);
  if (!socket->has_connection() && socket->local_stream == nullptr) return -ENOTCONN;
  if (socket->local_stream != nullptr || socket->tcp.connection->readable() == 0) return static_cast<int>(receive(number, {}, true));
  return static_cast<int>(socket->tcp.connection->gather(pieces));
}

void Stack::consume(int number, uint32_t bytes) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket != nullptr) consume_at(static_cast<uint32_t>(number), bytes);
}

void Stack::consume_at(uint32_t index, uint32_t bytes) {
  Socket& socket = core_.sockets[index];
  if (socket.local_stream != nullptr) return consume_local(index, bytes);
  if (!socket.has_connection()) return;
  tcp::Connection& connection = *socket.tcp.connection;
  bytes = std::min(bytes, connection.readable());
  connection.consume(bytes);
  core_.positions.count_read(index, bytes);
  core_.make_due(index);
}

// ---- what goes

// After whatever may have changed a connection: what it has to send, its timer, its owner. The socket may be gone then.
void Stack::after(uint32_t index) {
  if (core_.sockets[index].deferred) return core_.notify(index);
  const bool blocked = !output_.send_all(index, core_.now);
  if (blocked) core_.make_due(index);
  Socket& socket = core_.sockets[index];
  if (!blocked) socket.due = false;  // run() would do the same once more
  tcp::Connection& connection = *socket.tcp.connection;
  // While there is no room run() tries again by itself: the pacer need not wake it before that.
  core_.timers.set(index, std::max(connection.next_timer(), core_.now + (blocked ? kMillisecond : 1)));
  if (const uint16_t size = connection.take_path_news(); size != 0) {
    const uint32_t headers = (socket.remote.host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes) + sizeof(ip::TcpHeader);
    path_mtus_.learn(socket.remote.host, size + headers, core_.now);
  }
  take_failure(socket);
  // While it ends, others may have to go on from here (unet/socket_table.h).
  if (socket.is_closing() || static_cast<uint8_t>(connection.state()) != socket.shown) core_.show(index);
  const bool closed = connection.state() == tcp::State::closed;
  if (socket.early && !is_opening(connection.state())) names_.listeners().end_early(socket);
  if (closed && !blocked) core_.remove_flow(index);  // the same ends may connect anew
  if (socket.stage == Stage::embryo) return blocked ? void() : embryo_changed(index);
  if (socket.is_closing() && !blocked) {
    if (closed) return drop(index);
    if (connection.state() == tcp::State::time_wait) return begin_time_wait(index);
  }
  core_.notify(index);
}

// Stores why the connection has ended, for its owner.
void Stack::take_failure(Socket& socket) {
  const tcp::Connection& connection = *socket.tcp.connection;
  if (connection.state() != tcp::State::closed || socket.failed || connection.error() == tcp::Error::none) return;
  socket.failed = socket.came = true;
  // An ICMP error meanwhile is a better reason than silence.
  const bool silent = connection.error() == tcp::Error::timed_out || connection.error() == tcp::Error::unreachable;
  const int path = silent ? errno_of(connection.path_error(), socket.remote.host.is_ipv4()) : 0;
  // As Linux has it: after the end of the peer's stream a reset is a broken pipe.
  const bool broken = connection.error() == tcp::Error::reset && connection.readiness().ended;
  socket.error = path != 0 ? path : broken ? EPIPE : errno_of(connection.error());
}

// ---- what comes

void Stack::handle_tcp(const ip::IpView& packet, const IpMessageHeader& header) {
  if ((header.flags & IpMessageFlags::kChecked) == 0) {
    const auto length = static_cast<uint32_t>(packet.payload.size());
    const uint64_t sum = pseudo_header_sum(packet.from, packet.to, ip::Protocol::kTcp, length);
    if (ip::checksum_fold(ip::checksum_add(sum, packet.payload)) != 0) return void(++core_.counters.bad_checksum);
  }
  ip::TcpView segment;
  if (parse_tcp(packet.payload, segment) != ip::TcpError::none) return void(++core_.counters.bad_segment);
  const Address local{packet.to, segment.destination_port}, remote{packet.from, segment.source_port};
  const uint32_t hash = core_.flows.hash(local, remote);
  uint32_t index = core_.flow(hash, local, remote);
  std::optional<tcp::Sequence> begin;  // where the numbers of a new connection may begin
  using Flags = ip::TcpFlags;
  const bool calls = segment.has(Flags::kSyn) && !segment.has(Flags::kAck) && !segment.has(Flags::kRst);
  const bool is_of_local_peer = index != kNone && core_.sockets[index].local_stream != nullptr;
  if (is_of_local_peer && (header.flags & IpMessageFlags::kSameNi) != 0 && calls) [[unlikely]] index = handle_local_syn(index);
  const bool is_local = index != kNone && !core_.sockets[index].has_connection();  // the segment is of no stream and no listener: refuse it
  if (index == kNone && handle_time_wait(hash, local, remote, segment, begin)) return;
  if (index != kNone && !is_local && core_.sockets[index].tcp.connection->yields_to(segment)) {
    begin = core_.sockets[index].tcp.connection->time_wait().snd_nxt;
    if (core_.sockets[index].is_owned()) core_.remove_flow(index);  // its owner has not closed it yet
    else drop(index);
    index = kNone;
  }
  const SynCookies::Answer cookie = index != kNone && !is_local ? overtakes_by_cookie(index, segment) : SynCookies::Answer::none;
  if (cookie == SynCookies::Answer::later) [[unlikely]] return void(++core_.counters.cookies_bad);
  if (cookie == SynCookies::Answer::first) [[unlikely]] {
    drop(index);
    index = kNone;
  }
  if (index != kNone && !is_local) return handle_connection(index, segment, packet.traffic_class & 3);
  if (const uint32_t listener = is_local ? kNone : names_.listeners().choose(local, hash); listener != kNone) {
    if (calls) return handle_syn(listener, local, remote, segment, packet.traffic_class & 3, begin);
    const bool answers = segment.has(Flags::kAck) && !segment.has(Flags::kSyn) && !segment.has(Flags::kRst);
    if (answers && take_cookie(listener, local, remote, segment)) return;
    if (!segment.has(Flags::kAck)) return void(++core_.counters.no_socket);  // RFC 9293, 3.10.7.2, fourth
  }
  ++core_.counters.no_socket;
  if (const auto reset = tcp::reset_for(segment)) output_.send(nullptr, local, remote, {.fields = *reset});
}

void Stack::handle_connection(uint32_t index, const ip::TcpView& segment, uint8_t ecn) {
  Socket& socket = core_.sockets[index];
  tcp::Connection& connection = *socket.tcp.connection;
  const uint32_t there = connection.readable();
  connection.handle_segment(segment, core_.now, ecn);
  if (socket.fast_open_asked && is_synchronized(connection.state())) fast_open_.learn(socket, segment, core_.now);
  if (segment.has(ip::TcpFlags::kUrg)) [[unlikely]] {
    const auto before = connection.take_urgent();
    if (before && core_.set_urgent(index, *before, there)) consume_at(index, 1);
  }
  take_failure(socket);
  // The ACK and the timers wait for the end of the batch; the application is notified now.
  core_.make_due(index);
  core_.notify(index, connection.readable() > there);
}

}  // namespace unet::sockets
