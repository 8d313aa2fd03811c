// tcp_streams.cc - streams by TCP: how they begin, their calls, and their segments.
#include "ipstack/sockets/tcp_streams.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "unet/base/bytes.h"

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

// The errors of Linux's tcp_v4_err().
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

}  // namespace

TcpStreams::TcpStreams(StackCore& core, SocketNames& names, const StackSecrets& secrets)
    : core_(core), names_(names), hashes_{secrets.connections}, default_options_(option_sets_.get(core.options.tcp)),
      path_mtus_({.link_mtu = 0xFFFF, .seed = secrets.stream_paths}),
      fast_open_{secrets.fast_open_given, secrets.fast_open_known, core.counters},
      time_waits_(core.options.time_waits_max, {}, names.tcp_ports(), core.tables, core.counters),
      output_(core.network, core.memory.chunks, core.counters, core.sockets, core.options.chunk_bytes) {}

// ---- a connection begins

int TcpStreams::take_ends(uint32_t index, Address to) {
  Socket& socket = core_.sockets[index];
  if (to.host.is_unspecified()) {
    const auto own = core_.addresses.first_of(!socket.ipv6);
    if (!own) return -ENETUNREACH;
    to.host = *own;
  }
  if (to.host.is_multicast() || to.host.is_limited_broadcast()) return -ENETUNREACH;
  if (to.port == 0) return -ECONNREFUSED;
  ip::IpAddress from = socket.local.host;
  if (from.is_unspecified() && !core_.addresses.source_for(to.host, from)) return -ENETUNREACH;
  if (from.is_ipv4() != to.host.is_ipv4() || (core_.addresses.is_cut_off(from) && !core_.addresses.is_own(to.host))) return -ENETUNREACH;
  if (!socket.bound) {
    const auto free = [&](uint16_t port) { return is_free({from, port}, to); };
    if (const int error = names_.tcp_ports().take_any(hashes_.port_offset(from, to), free, socket.local.port); error != 0) return -error;
    socket.bound = true;
  } else if (!is_free({from, socket.local.port}, to)) {
    return -EADDRNOTAVAIL;
  }
  socket.local.host = from;
  socket.remote = to;
  socket.error = 0;  // of a connection before, that disconnect() has ended
  socket.moves = 0;
  socket.connecting = true;
  core_.add_flow(index);
  return 0;
}

bool TcpStreams::open(uint32_t index) {
  Socket& socket = core_.sockets[index];
  make_connection(socket);
  ++core_.counters.connections_out;
  const auto before = time_waits_.replace(core_.flows.hash(socket.local, socket.remote), socket.local, socket.remote);
  socket.tcp.connection->connect(socket.remote.port, hashes_.initial_sequence(socket.local, socket.remote, core_.now, before), core_.now,
                                  hashes_.timestamp_offset(socket.local, socket.remote));
  socket.deferred = socket.fast_open_connect && fast_open_.begin(socket, core_.now);
  advance(index);
  return core_.sockets.has(index) && core_.sockets[index].deferred;
}

void TcpStreams::make_connection(Socket& socket) {
  const uint32_t header = socket.remote.host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes;
  // Packets inside this network interface are not cut.
  const bool own = core_.addresses.is_own(socket.remote.host);
  const uint32_t mtu = own ? TcpOutput::kPayloadMax + header + sizeof(ip::TcpHeader) : core_.addresses.mtu_from(socket.local.host);
  tcp::Options options = *socket.tcp.options;
  options.mss = socket.mss(mtu - header - static_cast<uint32_t>(sizeof(ip::TcpHeader)));
  options.default_mss = socket.remote.host.is_ipv4() ? 536 : 1220;
  socket.tcp.options = option_sets_.get(options);
  socket.tcp.connection = std::make_unique<tcp::Connection>(*socket.tcp.options, core_.memory.resources, socket.local.port);
  const uint32_t path = path_mtus_.mtu(socket.remote.host, core_.now);
  if (own || path < mtu) {
    const uint32_t size = (own ? mtu : path) - header - static_cast<uint32_t>(sizeof(ip::TcpHeader));
    socket.tcp.connection->limit_path(static_cast<uint16_t>(size));
  }
  socket.failed = false;
}

// ---- calls

int64_t TcpStreams::send(uint32_t index, Bytes data, bool more, bool urgent) {
  Socket& socket = core_.sockets[index];
  if (!socket.has_connection() || socket.shut_write) return -EPIPE;
  tcp::Connection& connection = *socket.tcp.connection;
  socket.told = static_cast<uint16_t>(socket.told & ~Events::kOut);  // told again when there is room
  if (is_opening(connection.state()) && !socket.deferred && !connection.is_early()) return -EAGAIN;
  const bool opens = socket.deferred;
  socket.deferred = false;
  const tcp::Transferred sent = connection.send(data);
  if (sent.bytes != 0) connection.expect_more(more || sent.bytes < data.size());  // what found no room follows
  if (sent.error != tcp::Error::none) return -EPIPE;
  if (urgent && sent.bytes != 0 && sent.bytes == data.size()) [[unlikely]] connection.mark_urgent();
  if (sent.bytes < data.size() && connection.writable() != 0) core_.starved.push(index);  // no chunk was to be had
  if (sent.bytes == 0 && !opens) return data.empty() ? 0 : -EAGAIN;
  advance(index);
  return sent.bytes == 0 && !data.empty() ? -EAGAIN : int64_t{sent.bytes};
}

int64_t TcpStreams::receive(uint32_t index, MutableBytes data, bool peek) {
  Socket& socket = core_.sockets[index];
  if (!socket.has_connection()) return socket.error != 0 ? -socket.take_error() : -ENOTCONN;
  tcp::Connection& connection = *socket.tcp.connection;
  size_t skip = peek ? core_.positions.peek_offset(index) : 0;
  if (socket.urgent) [[unlikely]] {
    if (data.empty() || !core_.positions.is_urgent_next(index, skip)) {
      data = core_.positions.room_to_urgent(index, data, skip);
    } else if (peek) {
      ++skip;
    } else {
      consume(index, 1);
    }
  }
  if (connection.readable() <= skip) {
    if (connection.readiness().ended) return 0;  // as on Linux also if it was reset after that: a send returns the error
    if (socket.error != 0) return -socket.take_error();
    const tcp::State state = connection.state();
    if (socket.deferred) {  // the application waits for the peer's data first: the SYN leaves now
      socket.deferred = false;
      advance(index);
      return -EAGAIN;
    }
    if (is_opening(state)) return -EAGAIN;
    return socket.shut_read || state == tcp::State::closed || connection.readiness().ended ? 0 : -EAGAIN;
  }
  if (peek) {
    size_t copied = 0;
    std::vector<Bytes>& pieces = output_.pieces();
    const uint32_t count = connection.gather(pieces);
    for (uint32_t i = 0; i < count && copied < data.size(); ++i) copied += copy_behind(pieces[i], skip, data.subspan(copied));
    core_.positions.count_peeked(index, copied);
    return static_cast<int64_t>(copied);
  }
  const uint32_t bytes = connection.receive(data).bytes;
  core_.positions.count_read(index, bytes);
  core_.make_due(index);  // the window may be told; with what the application sends next, if it does
  return bytes;
}

void TcpStreams::consume(uint32_t index, uint32_t bytes) {
  Socket& socket = core_.sockets[index];
  if (!socket.has_connection()) return;
  tcp::Connection& connection = *socket.tcp.connection;
  bytes = std::min(bytes, connection.readable());
  connection.consume(bytes);
  core_.positions.count_read(index, bytes);
  core_.make_due(index);
}

int TcpStreams::reserve(uint32_t index, uint32_t bytes, Reservation& reserved, MutableBytes& room) {
  Socket& socket = core_.sockets[index];
  if (!socket.has_connection() || socket.shut_write) return -EPIPE;
  tcp::Connection& connection = *socket.tcp.connection;
  if (connection.state() == tcp::State::closed) return -EPIPE;
  if (socket.deferred) {  // what is written in place does not go with a SYN
    socket.deferred = false;
    advance(index);
    return -EAGAIN;
  }
  room = connection.reserve(bytes, reserved.spare);
  if (!room.empty()) return 0;
  if (connection.writable() != 0) core_.starved.push(index);  // no chunk was to be had
  return -EAGAIN;
}

void TcpStreams::commit(uint32_t index, uint32_t bytes, const Reservation& reserved) {
  Socket& socket = core_.sockets[index];
  socket.told = static_cast<uint16_t>(socket.told & ~Events::kOut);
  socket.tcp.connection->commit(bytes, reserved.spare);
  if (bytes != 0) advance(index);
}

void TcpStreams::shut_down(uint32_t index) {
  core_.sockets[index].deferred = false;
  core_.sockets[index].tcp.connection->shutdown();
  advance(index);
}

void TcpStreams::close(uint32_t index) {
  Socket& socket = core_.sockets[index];
  socket.stage = Stage::closing;
  socket.deferred = false;
  if (socket.linger == 0) socket.tcp.connection->abort();
  else socket.tcp.connection->close(core_.now);
  advance(index);
}

void TcpStreams::disconnect(uint32_t index) {
  Socket& socket = core_.sockets[index];
  const tcp::State state = socket.tcp.connection->state();
  const bool over = state == tcp::State::closed || state == tcp::State::time_wait || state == tcp::State::closing ||
                    state == tcp::State::last_ack;
  if (!over) socket.error = ECONNRESET;
  reset(index);  // without room the peer is reset when it says something
  if (socket.early) names_.listening().end_early(socket);
}

bool TcpStreams::reset(uint32_t index) {
  core_.sockets[index].tcp.connection->abort();
  return output_.send_all(index, core_.now);
}

int TcpStreams::set_option(uint32_t index, SocketOption option, int64_t value) {
  Socket& socket = core_.sockets[index];
  tcp::Options wanted = *socket.tcp.options;
  if (const int error = store_option(socket, option, value, wanted); error != 0) return error;
  const bool others = wanted != *socket.tcp.options;
  if (others) {
    SharedOptions fresh = option_sets_.get(wanted);
    if (socket.has_connection()) socket.tcp.connection->set_options(*fresh);
    socket.tcp.options = std::move(fresh);
  }
  // Linux pushes what is queued also by the value that an option has already: MSG_MORE may hold it.
  const bool pushes = option == SocketOption::no_delay ? value != 0 : option == SocketOption::cork && value == 0;
  if (!socket.has_connection() || (!others && !pushes && option != SocketOption::congestion)) return 0;
  if (option == SocketOption::congestion) socket.tcp.connection->set_congestion(wanted.congestion, core_.now);
  if (pushes) socket.tcp.connection->push();
  // Data that had waited may go, and timers may be others.
  advance(index);
  return 0;
}

int64_t TcpStreams::path_mtu(const Socket& socket) {
  if (!socket.has_connection() && socket.local_stream == nullptr) return -ENOTCONN;
  const ip::IpAddress& to = socket.remote.host;
  if (socket.local_stream != nullptr || core_.addresses.is_own(to)) return HostAddresses::own_path_mtu(to.is_ipv4());
  const uint32_t known = socket.tcp.connection->info(core_.now).path_mtu(!to.is_ipv4());
  return known != 0 ? known : std::min(core_.addresses.mtu_from(socket.local.host), path_mtus_.mtu(to, core_.now));
}

// ---- what goes

void TcpStreams::advance(uint32_t index) {
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
  const bool closed = connection.state() == tcp::State::closed;
  if (closed) take_failure(socket);
  // While it ends, others may have to go on from here (unet/socket_table.h).
  if (socket.is_closing() || static_cast<uint8_t>(connection.state()) != socket.shown) core_.show(index);
  if (socket.early && !is_opening(connection.state())) names_.listening().end_early(socket);
  if (closed && !blocked) core_.remove_flow(index);  // the same ends may connect anew
  if (socket.stage == Stage::embryo) return blocked ? void() : embryo_changed(index);
  if (socket.is_closing() && !blocked) {
    if (closed) return names_.drop(index);
    if (connection.state() == tcp::State::time_wait) return begin_time_wait(index);
  }
  core_.notify(index);
}

// The connection of an embryo is open, so that accept() may have it, or it has ended.
void TcpStreams::embryo_changed(uint32_t index) {
  Socket& socket = core_.sockets[index];
  const tcp::State state = socket.tcp.connection->state();
  if (state == tcp::State::closed) return names_.drop(index);
  if (!is_synchronized(state) && !socket.early) return;
  Socket& listener = core_.sockets[socket.listener];
  socket.stage = Stage::queued;
  names_.listening().end_handshake(socket.listener);
  ++core_.counters.connections_in;
  const uint32_t parent = socket.listener;
  listener.listening->ready.push_back(index);
  core_.notify(parent, true);
}

void TcpStreams::run_timer(uint32_t index) {
  if (!core_.sockets[index].has_connection()) return;
  tcp::Connection& connection = *core_.sockets[index].tcp.connection;
  if (connection.next_timer() <= core_.now) connection.handle_timer(core_.now);
  advance(index);
}

// Stores why the connection has ended, for the application.
void TcpStreams::take_failure(Socket& socket) {
  const tcp::Connection& connection = *socket.tcp.connection;
  if (socket.failed || connection.error() == tcp::Error::none) return;
  socket.failed = socket.came = true;
  // An ICMP error meanwhile is a better reason than silence.
  const bool silent = connection.error() == tcp::Error::timed_out || connection.error() == tcp::Error::unreachable;
  const int path = silent ? errno_of(connection.path_error(), socket.remote.host.is_ipv4()) : 0;
  // A reset after the end of the peer's stream is a broken pipe, as in Linux.
  const bool broken = connection.error() == tcp::Error::reset && connection.readiness().ended;
  socket.error = path != 0 ? path : broken ? EPIPE : errno_of(connection.error());
}

// ---- what comes

void TcpStreams::handle_segment(uint32_t index, const ip::TcpView& segment, uint8_t ecn) {
  Socket& socket = core_.sockets[index];
  tcp::Connection& connection = *socket.tcp.connection;
  const uint32_t there = connection.readable();
  connection.handle_segment(segment, core_.now, ecn);
  if (socket.fast_open_asked && is_synchronized(connection.state())) fast_open_.learn(socket, segment, core_.now);
  if (segment.has(ip::TcpFlags::kUrg)) [[unlikely]] {
    const auto before = connection.take_urgent();
    if (before && core_.set_urgent(index, *before, there)) consume(index, 1);
  }
  if (connection.state() == tcp::State::closed) take_failure(socket);
  // The ACK and the timers wait for the end of the batch; the application is notified now.
  core_.make_due(index);
  core_.notify(index, connection.readable() > there);
}

}  // namespace unet::sockets
