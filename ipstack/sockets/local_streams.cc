// local_streams.cc - calls of local streams, and what goes to their peers (local_peer_message.h).
#include "ipstack/sockets/local_streams.h"

#include <algorithm>
#include <cerrno>
#include <memory>

#include "unet/base/bytes.h"

namespace unet::sockets {
namespace {

constexpr size_t kUnsentMost = 16 * 1024;  // bytes that a stream takes though its channel is full

// False: the channel still has no room.
bool send_unsent(Network& network, LocalStream& part) {
  if (part.unsent.empty()) return true;
  PeerHeader header = header_to(part, PeerKind::kData);
  header.urgent = part.unsent_urgent;
  if (!network.send_to_local_peer(part.local_peer, bytes_of(header), part.unsent)) return false;
  part.unsent = {};
  return true;
}

}  // namespace

bool LocalStreams::connect(uint32_t index) {
  Socket& socket = core_.sockets[index];
  const PeerDirectory::Entry* const known = directory_.find(ip::Protocol::kTcp, socket.remote);
  const bool joined = known != nullptr && known->asked;
  const PeerDirectory::Entry& where = directory_.look_up(ip::Protocol::kTcp, socket.remote, core_.now);
  if (where.local_peer == kNone && !where.asked) return false;
  socket.local_stream = std::make_unique<LocalStream>();
  LocalStream& part = *socket.local_stream;
  part.life = next_life();
  part.window = std::max(socket.tcp.options->receive_buffer, kWindowLeast);
  part.local_peer = where.local_peer;
  part.open_due = part.local_peer != kNone;
  part.joined = joined;
  if (part.local_peer == kNone) await_peer(index);
  core_.timers.set(index, core_.now + socket.tcp.options->syn_timeout);
  core_.show(index);
  flush(index);
  return true;
}

int64_t LocalStreams::send(uint32_t index, Bytes data, bool urgent) {
  Socket& socket = core_.sockets[index];
  LocalStream& part = *socket.local_stream;
  if (part.state == LocalStream::State::asking) return -EAGAIN;
  if (part.state == LocalStream::State::closed || part.end != LocalStream::End::none) return -EPIPE;
  if (part.is_moving() || (part.is_behind() && !try_flush(index))) return -EAGAIN;
  PeerHeader header = header_to(part, PeerKind::kData);
  size_t sent = 0;
  while (sent < data.size() && part.credit != 0) {
    size_t bytes = std::min({data.size() - sent, size_t{part.credit}, size_t{kMessageMax}});
    header.urgent = urgent && bytes == data.size() - sent;
    if (!core_.network.send_to_local_peer(part.local_peer, bytes_of(header), data.subspan(sent, bytes))) {
      ++core_.counters.no_room;
      core_.make_due(index);
      bytes = std::min(bytes, kUnsentMost);
      part.unsent.assign(data.begin() + static_cast<ptrdiff_t>(sent), data.begin() + static_cast<ptrdiff_t>(sent + bytes));
      part.unsent_urgent = urgent && sent + bytes == data.size();
    }
    part.credit -= static_cast<uint32_t>(bytes);
    part.sent.count(static_cast<uint32_t>(bytes), core_.now);
    sent += bytes;
    if (!part.unsent.empty()) break;
  }
  return sent == 0 && !data.empty() ? -EAGAIN : static_cast<int64_t>(sent);
}

int64_t LocalStreams::receive(uint32_t index, MutableBytes data, bool peek) {
  if (core_.has_awaited(static_cast<int>(index))) return core_.take_awaited();
  Socket& socket = core_.sockets[index];
  LocalStream& part = *socket.local_stream;
  size_t skip = peek ? core_.positions.peek_offset(index) : 0;
  if (socket.urgent) [[unlikely]] {
    if (data.empty() || !core_.positions.is_urgent_next(index, skip)) data = core_.positions.room_to_urgent(index, data, skip);
    else if (peek) ++skip;
    else consume(index, 1);
  }
  if (part.unread <= skip) {
    if (part.end_came) return 0;  // as of TCP
    if (socket.error != 0) return -socket.take_error();
    if (part.state == LocalStream::State::asking) return -EAGAIN;
    return part.end_came || socket.shut_read || part.state == LocalStream::State::closed ? 0 : -EAGAIN;
  }
  size_t copied = 0;
  for (const LocalStream::Piece& piece : part.pieces) {
    if (copied == data.size()) break;
    copied += copy_behind(piece.bytes(), skip, data.subspan(copied));
  }
  if (peek) core_.positions.count_peeked(index, copied);
  else consume(index, static_cast<uint32_t>(copied));
  return static_cast<int64_t>(copied);
}

int LocalStreams::gather(const Socket& socket, std::span<Bytes> pieces) {
  const auto count = static_cast<uint32_t>(std::min(pieces.size(), socket.local_stream->pieces.size()));
  for (uint32_t i = 0; i < count; ++i) pieces[i] = socket.local_stream->pieces[i].bytes();
  return static_cast<int>(count);
}

void LocalStreams::consume(uint32_t index, uint32_t bytes) {
  LocalStream& part = *core_.sockets[index].local_stream;
  bytes = std::min(bytes, part.unread);
  core_.positions.count_read(index, bytes);
  part.unread -= bytes;
  part.untold += bytes;
  while (bytes != 0) {
    LocalStream::Piece& piece = part.pieces.front();
    const auto left = static_cast<uint32_t>(piece.bytes().size());
    if (left > bytes) {
      piece.taken += bytes;
      break;
    }
    bytes -= left;
    peers_.drop_piece(part, piece);
    part.pieces.pop_front();
  }
  tell_read(index);
}

// Enough was read for the peer to hear of it.
void LocalStreams::tell_read(uint32_t index) {
  const LocalStream& part = *core_.sockets[index].local_stream;
  if (part.untold >= part.window / 2) flush(index);
}

void LocalStreams::shut_down(uint32_t index) {
  LocalStream& part = *core_.sockets[index].local_stream;
  if (part.end != LocalStream::End::none) return;
  part.end = LocalStream::End::due;
  flush(index);
}

void LocalStreams::close(uint32_t index) {
  Socket& socket = core_.sockets[index];
  LocalStream& part = *socket.local_stream;
  socket.stage = Stage::closing;
  if (part.state == LocalStream::State::open && (part.unread != 0 || socket.linger == 0)) {
    peers_.send_reset(part);
    return drop(index);
  }
  if (part.state != LocalStream::State::open) return drop(index);  // what answers the question is answered by a reset
  if (part.end == LocalStream::End::none) part.end = LocalStream::End::due;
  core_.timers.set(index, core_.now + socket.tcp.options->fin_wait_2);
  if (!try_flush(index)) return core_.make_due(index);
  if (part.is_over()) drop(index);
}

void LocalStreams::disconnect(uint32_t index) {
  Socket& socket = core_.sockets[index];
  if (socket.local_stream->state != LocalStream::State::closed) socket.error = ECONNRESET;
  // An answer to the stream's question is itself answered by a reset.
  if (socket.local_stream->state == LocalStream::State::open) peers_.send_reset(*socket.local_stream);
}

void LocalStreams::forget(Socket& socket) {
  if (socket.local_stream != nullptr) peers_.drop_pieces(*socket.local_stream);
  socket.local_stream.reset();
}

void LocalStreams::drop(uint32_t index) {
  peers_.drop_pieces(*core_.sockets[index].local_stream);
  names_.drop(index);
}

// ---- sending without a copy

int LocalStreams::reserve(uint32_t index, uint32_t bytes, Reservation& reserved, MutableBytes& room) {
  Socket& socket = core_.sockets[index];
  LocalStream& part = *socket.local_stream;
  if (part.state == LocalStream::State::asking) return -EAGAIN;
  if (part.state == LocalStream::State::closed || part.end != LocalStream::End::none) return -EPIPE;
  if (part.is_moving() || (part.is_behind() && !try_flush(index)) || part.credit == 0) return -EAGAIN;
  bytes = std::min({bytes, part.credit, kMessageMax});
  reserved.message = core_.network.reserve_to_local_peer(part.local_peer, bytes);
  if (reserved.message.empty()) {
    ++core_.counters.no_room;
    socket.refused_bytes = bytes;
    core_.make_due(index);
    return -EAGAIN;
  }
  reserved.local_peer = part.local_peer;
  room = reserved.message.first(bytes);
  return 0;
}

void LocalStreams::commit(uint32_t index, uint32_t bytes) {
  if (bytes == 0) return;
  LocalStream& part = *core_.sockets[index].local_stream;
  core_.network.post_to_local_peer(part.local_peer, bytes_of(header_to(part, PeerKind::kData)), bytes);
  part.credit -= bytes;
  part.sent.count(bytes, core_.now);
}

// ---- what goes

bool LocalStreams::try_flush(uint32_t index) {
  Socket& socket = core_.sockets[index];
  LocalStream& part = *socket.local_stream;
  if (part.open_due) {
    const PeerOpen open{.header = {.kind = PeerKind::kOpen, .moves = 1, .socket = index, .life = part.life}, .window = part.window,
                        .from_port = socket.local.port, .to_port = socket.remote.port, .from = socket.local.host.bytes,
                        .to = socket.remote.host.bytes};
    if (!core_.network.send_to_local_peer(part.local_peer, bytes_of(open), {})) return false;
    part.open_due = false;
  }
  if (part.answer_due) {
    const PeerOpened opened{.header = {.kind = PeerKind::kOpened, .moves = 1, .socket = part.peer_socket, .life = part.peer_life},
                            .socket = index, .life = part.life, .window = part.window};
    if (!core_.network.send_to_local_peer(part.local_peer, bytes_of(opened), {})) return false;
    part.answer_due = false;
  }
  if (part.state != LocalStream::State::open || part.is_silent()) return true;
  if (part.resume_due && !send_resume(index)) return false;
  if (!send_unsent(core_.network, part)) return false;
  if (part.untold >= part.window / 2) {
    if (!peers_.send_header(part, PeerKind::kCredit, part.untold)) return false;
    part.untold = 0;
  }
  if (part.end == LocalStream::End::due) {
    if (!peers_.send_header(part, PeerKind::kEnd)) return false;
    part.end = LocalStream::End::sent;
    release_flow(index);
  }
  return part.move != LocalStream::Move::leaving || send_agreed(index);
}

// When both sides have ended the stream, the same ends may begin another one, even while the application keeps its socket.
void LocalStreams::release_flow(uint32_t index) {
  Socket& socket = core_.sockets[index];
  if (socket.local_stream->is_over()) core_.remove_flow(index);
}

// The local peer refuses: TCP finds out whether the port has a listener.
void LocalStreams::fall_back(uint32_t index) {
  ++core_.counters.near_refused;
  core_.timers.remove(index);
  core_.sockets[index].local_stream.reset();
  tcp_.open(index);
}

void LocalStreams::end(uint32_t index, int error) {
  Socket& socket = core_.sockets[index];
  LocalStream& part = *socket.local_stream;
  part.state = LocalStream::State::closed;
  part.open_due = part.answer_due = false;
  if (part.end == LocalStream::End::due) part.end = LocalStream::End::none;
  core_.timers.remove(index);
  release_flow(index);
  if (error != 0) socket.error = error == ECONNRESET && part.end_came ? EPIPE : error;  // as of TCP (take_failure())
  core_.show(index);
  if (socket.is_closing()) return drop(index);
  core_.notify(index);
}

// A local peer that does not answer, or does not end what its peer has ended and left.
void LocalStreams::run_timer(uint32_t index) {
  Socket& socket = core_.sockets[index];
  if (socket.local_stream->state == LocalStream::State::asking) return end(index, ETIMEDOUT);
  if (socket.local_stream->move == LocalStream::Move::away) return end(index, ECONNRESET);
  if (socket.local_stream->state != LocalStream::State::open || !socket.is_closing()) return;
  peers_.send_reset(*socket.local_stream);
  drop(index);
}

void LocalStreams::process_due(uint32_t index) {
  Socket& socket = core_.sockets[index];
  LocalStream& part = *socket.local_stream;
  const bool told = try_flush(index);
  const bool room = socket.refused_bytes == 0 || part.is_silent() || core_.network.has_room(part.local_peer, socket.refused_bytes);
  if (!told || !room) return core_.make_due(index);
  socket.refused_bytes = 0;
  return socket.is_closing() && part.is_over() ? drop(index) : core_.notify(index);
}

}  // namespace unet::sockets
