// stream_moves.cc - how a stream leaves a stack, and how it continues at another.
#include "ipstack/sockets/stream_moves.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <type_traits>

#include "ipstack/sockets/local_peer_message.h"
#include "unet/base/bytes.h"

namespace unet::sockets {

// The head of what export_stream() returns.
struct MovedStream {
  uint32_t version = 1;
  uint32_t unread = 0, unsent = 0;  // bytes that follow: to be read, and to be sent or acknowledged
  Address local{}, remote{};
  uint32_t peer_socket = 0, peer_life = 0, credit = 0, window = 0, untold = 0;  // as of LocalStream
  uint8_t by_channel = 0, end_sent = 0, end_came = 0, shut_read = 0;
  uint64_t token = 0;
  tcp::MovedConnection connection{};
};
static_assert(std::is_trivially_copyable_v<MovedStream>);

namespace {

bool has_all_sent(const LocalStream& part) noexcept {
  return !part.open_due && part.end != LocalStream::End::due && !part.resume_due && !part.is_behind();
}

}  // namespace

int StreamMoves::seek_local_peer(const Address& to) {
  if (!core_.addresses.is_own(to.host)) return -1;
  const PeerDirectory::Entry& where = directory_.look_up(ip::Protocol::kTcp, to, core_.now);
  return where.local_peer != kNone ? 1 : where.asked ? 0 : -1;
}

// ---- the end that moves

int StreamMoves::own_flow(int number, const ip::IpAddress& local, const Address& remote) {
  const Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (!socket->bound || socket->type != Type::stream) return -EINVAL;
  return -names_.tcp_ports().own_flow({local, socket->local.port}, remote);
}

Address StreamMoves::claimed_at(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  return socket == nullptr ? Address{} : Address{names_.tcp_ports().claimed_at(socket->local.host, socket->local.port), socket->local.port};
}

bool StreamMoves::may_move(const Socket& socket) const noexcept {
  if (socket.type != Type::stream || socket.urgent || socket.peeks_behind || socket.has_errors || socket.error != 0) return false;
  if (socket.local_stream != nullptr) {
    const LocalStream& part = *socket.local_stream;
    return part.state == LocalStream::State::open && part.peer_moves && !part.is_moving() && has_all_sent(part);
  }
  return socket.has_connection() && socket.tcp.connection->may_move() && !socket.early && !socket.deferred &&
         !core_.addresses.is_own(socket.remote.host);
}

int StreamMoves::begin(int number) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (!may_move(*socket)) return -EOPNOTSUPP;
  if (socket->local_stream == nullptr) return 1;
  LocalStream& part = *socket->local_stream;
  const uint64_t token = tcp_.hashes().move_token(socket->local, socket->remote, local_streams_.next_life());
  const PeerMove message{.header = header_to(part, PeerKind::kMove), .token = token};
  if (!core_.network.send_to_local_peer(part.local_peer, bytes_of(message), {})) return -EAGAIN;
  part.move_token = token;
  part.move = LocalStream::Move::asked;
  return 0;
}

bool StreamMoves::has_agreed(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  if (socket == nullptr) return false;
  if (socket->local_stream == nullptr) return may_move(*socket);
  return socket->local_stream->state == LocalStream::State::open && socket->local_stream->move == LocalStream::Move::agreed;
}

// The peer may have agreed: the stream is resumed by the channel that it had.
void StreamMoves::cancel(int number) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr || socket->local_stream == nullptr || !socket->local_stream->is_silent()) return;
  socket->local_stream->move = LocalStream::Move::none;
  socket->local_stream->resume_due = true;
  local_streams_.flush(static_cast<uint32_t>(number));
}

StreamOptions StreamMoves::options(int number) const {
  const Socket* const socket = core_.owned(number);
  UNET_CHECK(socket != nullptr && socket->type == Type::stream);
  return {.tcp = *socket->tcp.options, .hop_limit = socket->hop_limit, .traffic_class = socket->traffic_class,
          .max_segment = socket->max_segment, .keep_idle = socket->keep_idle, .linger = socket->linger,
          .zero_copy = socket->zero_copy, .urgent_inline = socket->urgent_inline};
}

void StreamMoves::set_options(int number, const StreamOptions& options) {
  Socket* const socket = core_.owned(number);
  UNET_CHECK(socket != nullptr && socket->type == Type::stream && !socket->has_connection());
  socket->tcp.options = tcp_.options(options.tcp);
  socket->hop_limit = options.hop_limit;
  socket->traffic_class = options.traffic_class;
  socket->max_segment = options.max_segment;
  socket->keep_idle = options.keep_idle;
  socket->linger = options.linger;
  socket->zero_copy = options.zero_copy;
  socket->urgent_inline = options.urgent_inline;
}

std::vector<std::byte> StreamMoves::export_stream(int number) {
  const auto index = static_cast<uint32_t>(number);
  UNET_CHECK(has_agreed(number));
  const Socket& socket = core_.sockets[index];
  MovedStream moved{.unread = socket.unread(), .local = socket.local, .remote = socket.remote, .shut_read = socket.shut_read};
  if (socket.local_stream != nullptr) {
    const LocalStream& part = *socket.local_stream;
    moved.by_channel = 1;
    moved.peer_socket = part.peer_socket;
    moved.peer_life = part.peer_life;
    moved.credit = part.credit;
    moved.window = part.window;
    moved.untold = part.untold;
    moved.end_sent = part.end == LocalStream::End::sent;
    moved.end_came = part.end_came;
    moved.token = part.move_token;
  } else {
    moved.connection = socket.tcp.connection->save();
    moved.unsent = moved.connection.to_send;
  }
  std::vector<std::byte> bytes(sizeof moved + moved.unread + moved.unsent);
  std::memcpy(bytes.data(), &moved, sizeof moved);
  const MutableBytes unread = MutableBytes(bytes).subspan(sizeof moved, moved.unread);
  if (socket.local_stream != nullptr) {
    std::byte* to = unread.data();
    for (const LocalStream::Piece& each : socket.local_stream->pieces) to = std::copy(each.bytes().begin(), each.bytes().end(), to);
  } else {
    socket.tcp.connection->copy_to_read(unread);
    socket.tcp.connection->copy_to_send(MutableBytes(bytes).last(moved.unsent));
    socket.tcp.connection->leave();
  }
  ++core_.counters.moved_out;
  local_streams_.forget(core_.sockets[index]);
  names_.drop(index);
  return bytes;
}

// ---- the new end

int StreamMoves::import_stream(int number, Bytes from) {
  Socket* const socket = core_.owned(number);
  MovedStream moved;
  if (socket == nullptr) return -EBADF;
  if (from.size() < sizeof moved) return -EINVAL;
  std::memcpy(&moved, from.data(), sizeof moved);
  from = from.subspan(sizeof moved);
  const bool fresh = socket->type == Type::stream && !socket->has_connection() && socket->local_stream == nullptr &&
                     socket->listening == nullptr;
  const bool sane = moved.version == 1 && uint64_t{moved.unread} + moved.unsent == from.size() && moved.by_channel <= 1 &&
                    moved.shut_read <= 1 && moved.local.port != 0 && moved.remote.port != 0 &&
                    moved.local.host.is_ipv4() == moved.remote.host.is_ipv4();
  const bool right = core_.addresses.is_own(moved.local.host) && core_.addresses.is_own(moved.remote.host) == (moved.by_channel != 0);
  if (!fresh || !sane || !right) return -EINVAL;
  if (core_.flow(moved.local, moved.remote) != kNone) return -EADDRINUSE;
  const auto index = static_cast<uint32_t>(number);
  const Bytes unread = from.first(moved.unread), unsent = from.last(moved.unsent);
  const int error = moved.by_channel != 0 ? import_local(index, moved, unread) : import_connection(index, moved, unread, unsent);
  if (error != 0) return error;
  socket->shut_read = moved.shut_read != 0;
  ++core_.counters.moved_in;
  core_.show(index);
  core_.notify(index, true);
  return 0;
}

int StreamMoves::import_local(uint32_t index, const MovedStream& moved, Bytes unread) {
  Socket& socket = core_.sockets[index];
  const PeerDirectory::Entry* const where = directory_.find(ip::Protocol::kTcp, moved.remote);
  if (where == nullptr || where->local_peer == kNone) return -ENETUNREACH;
  const bool sane = moved.unsent == 0 && moved.window <= kWindowMost && moved.credit <= kWindowMost && moved.end_sent <= 1 &&
                    moved.end_came <= 1 && uint64_t{moved.unread} + moved.untold <= moved.window;
  if (!sane || socket.bound) return -EINVAL;
  socket.local = moved.local;
  socket.remote = moved.remote;
  socket.named = true;
  socket.shut_write = moved.end_sent != 0;
  socket.local_stream = std::make_unique<LocalStream>();
  LocalStream& part = *socket.local_stream;
  part.state = LocalStream::State::open;
  part.local_peer = where->local_peer;
  part.peer_socket = moved.peer_socket;
  part.peer_life = moved.peer_life;
  part.life = local_streams_.next_life();
  part.credit = moved.credit;
  part.window = moved.window;
  part.unread = moved.unread;
  part.untold = moved.untold;
  part.end = moved.end_sent != 0 ? LocalStream::End::sent : LocalStream::End::none;
  part.end_came = moved.end_came != 0;
  part.peer_moves = part.resume_due = true;
  part.move_token = moved.token;
  if (!unread.empty()) part.pieces.push_back({.copy = {unread.begin(), unread.end()}});
  if (!part.is_over()) core_.add_flow(index);
  local_streams_.flush(index);
  return 0;
}

int StreamMoves::import_connection(uint32_t index, const MovedStream& moved, Bytes unread, Bytes unsent) {
  Socket& socket = core_.sockets[index];
  const Address name = socket.local;
  if (!socket.shares || name.port != moved.local.port || (!name.host.is_unspecified() && name.host != moved.local.host)) return -EINVAL;
  socket.local = moved.local;
  socket.remote = moved.remote;
  tcp_.make_connection(socket);
  if (!socket.tcp.connection->restore(moved.connection, unsent, unread, core_.now)) {
    socket.tcp.connection.reset();
    socket.local = name;
    socket.remote = {};
    return -EINVAL;
  }
  core_.add_flow(index);
  tcp_.advance(index);
  return 0;
}

}  // namespace unet::sockets
