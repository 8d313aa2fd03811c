// local_stream_messages.cc - what local peers say of streams (local_peer_message.h), and which peer has the port that a stream calls.
//
// A local peer is trusted as little as a stranger on a wire. Lengths are the message's. A socket's number is looked up with its life, and
// must belong to a stream of that peer. Data beyond the credit ends the stream. A peer may claim to speak from a port of another process,
// but not from one below 1024, unless it is of our user.
#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "ipstack/sockets/local_streams.h"
#include "unet/base/bytes.h"

namespace unet::sockets {
namespace {

constexpr Nanoseconds kAwayMost = 5 * kSecond;  // the peer waits so long for the new end

}  // namespace

bool LocalStreams::awaits_peer(uint32_t index) const noexcept {
  const LocalStream* const part = core_.sockets.has(index) ? core_.sockets[index].local_stream.get() : nullptr;
  return part != nullptr && part->state == LocalStream::State::asking && part->local_peer == kNone;
}

void LocalStreams::await_peer(uint32_t index) {
  if (awaiting_.size() > 2 * size_t{core_.sockets.size()} + 64) {  // of numbers that are used again while an answer is long in coming
    std::sort(awaiting_.begin(), awaiting_.end());
    awaiting_.erase(std::unique(awaiting_.begin(), awaiting_.end()), awaiting_.end());
    std::erase_if(awaiting_, [&](uint32_t each) { return !awaits_peer(each); });
  }
  awaiting_.push_back(index);
}

void LocalStreams::handle_found(const Address& to, uint32_t local_peer, bool shared) {
  std::vector<uint32_t> all;
  all.swap(awaiting_);
  bool answered = false;
  for (const uint32_t i : all) {
    if (!awaits_peer(i)) continue;
    // An answer for a share is for one stream: the others ask again.
    const bool next = shared && answered && core_.sockets[i].remote == to && directory_.look_up(ip::Protocol::kTcp, to, core_.now).asked;
    if (core_.sockets[i].remote != to || next) {
      awaiting_.push_back(i);
      continue;
    }
    answered = true;
    LocalStream& part = *core_.sockets[i].local_stream;
    // The answer may be older than this stream, and its server have come between them.
    if (local_peer == kUnclaimed && std::exchange(part.joined, false) && directory_.look_up(ip::Protocol::kTcp, to, core_.now).asked) {
      awaiting_.push_back(i);
      continue;
    }
    if (local_peer == kUnclaimed) {
      end(i, ECONNREFUSED);  // as the reset would say that the network interface answers TCP with
      continue;
    }
    if (local_peer == kNone) {
      fall_back(i);
      continue;
    }
    part.local_peer = local_peer;
    part.open_due = true;
    flush(i);
  }
}

void LocalStreams::handle_peer_gone(uint32_t local_peer) {
  directory_.forget(local_peer);
  names_.datagrams().change();
  for (uint32_t i = 0; i < core_.sockets.end(); ++i) {
    if (!core_.sockets.has(i) || core_.sockets[i].local_stream == nullptr) continue;
    LocalStream& part = *core_.sockets[i].local_stream;
    if (part.local_peer != local_peer) continue;
    peers_.copy_all(part);  // what has come is still read
    if (part.move == LocalStream::Move::away) part.local_peer = kNone;  // the stream goes on by another one
    else if (part.state == LocalStream::State::asking) fall_back(i);
    else if (part.state == LocalStream::State::open) end(i, part.end_came ? 0 : ECONNRESET);
  }
  peers_.close(local_peer);
}

// ---- messages

bool LocalStreams::handle_message(uint32_t local_peer, const Message& message, Bytes head) {
  const bool apart = !head.empty();
  const Bytes bytes = apart ? head : message.bytes();
  PeerHeader header;
  if (!read_message(bytes, header)) {
    ++core_.counters.near_bad;
    return false;
  }
  if (header.kind == PeerKind::kOpen) {
    handle_open(local_peer, bytes);
    return false;
  }
  if (header.kind == PeerKind::kResume) {
    handle_resume(local_peer, bytes);
    return false;
  }
  peers_.count_arrival(local_peer, message.length);
  const LocalStream* const known = core_.sockets.has(header.socket) ? core_.sockets[header.socket].local_stream.get() : nullptr;
  if (known == nullptr || known->local_peer != local_peer || known->life != header.life) {
    // The stream has ended here, and the peer has been told. But an answer to kOpen needs a reset: the peer believes the stream open.
    PeerOpened opened;
    if (header.kind == PeerKind::kOpened && read_message(bytes, opened)) {
      peers_.send_or_queue(local_peer, {.kind = PeerKind::kReset, .socket = opened.socket, .life = opened.life});
    }
    return false;
  }
  const uint32_t index = header.socket;
  Socket& socket = core_.sockets[index];
  LocalStream& part = *socket.local_stream;
  if (header.kind == PeerKind::kOpened || header.kind == PeerKind::kRefused) {
    handle_answer(index, bytes);
    return false;
  }
  if (header.kind == PeerKind::kReset && part.state == LocalStream::State::asking) {
    end(index, ECONNRESET);  // accepted, and gone
    return false;
  }
  if (part.state != LocalStream::State::open) return false;
  if (part.move == LocalStream::Move::away) {
    if (header.kind == PeerKind::kReset) end(index, ECONNRESET);
    return false;
  }
  PeerCredit credit;
  PeerMove move;
  switch (header.kind) {
    case PeerKind::kData: return handle_data(index, message, apart ? 0 : sizeof header, header.urgent != 0);
    case PeerKind::kCredit:
      if (!read_message(bytes, credit) || credit.bytes > kWindowMost - part.credit) break;
      part.credit += credit.bytes;
      core_.notify(index);
      return false;
    case PeerKind::kEnd:
      part.end_came = true;
      if (socket.is_closing() && part.is_over()) return drop(index), false;
      release_flow(index);
      core_.notify(index);
      return false;
    case PeerKind::kReset:
      end(index, ECONNRESET);
      return false;
    case PeerKind::kMove:
      if (!read_message(bytes, move)) break;
      handle_move(index, move.token);
      return false;
    case PeerKind::kAgreed:
      if (part.move == LocalStream::Move::asked) part.move = LocalStream::Move::agreed;
      core_.list(index);
      return false;
    default: break;
  }
  ++core_.counters.near_bad;
  return false;
}

// `before`: bytes of the message that are no data.
bool LocalStreams::handle_data(uint32_t index, const Message& message, uint32_t before, bool urgent) {
  const uint32_t bytes = message.length - before;
  Socket& socket = core_.sockets[index];
  LocalStream& part = *socket.local_stream;
  const bool gone = socket.is_closing();
  const bool lies = part.end_came || part.unread + part.untold + uint64_t{bytes} > part.window;
  if (gone || lies) {
    // The application has closed the stream, or the data exceeds the window.
    if (lies) ++core_.counters.near_bad;
    peers_.send_reset(part);
    end(index, ECONNRESET);
    return false;
  }
  if (bytes == 0) return false;
  part.received.count(bytes, core_.now);
  if (urgent) [[unlikely]] {
    if (core_.set_urgent(index, part.unread + bytes - 1, part.unread)) consume(index, 1);
  }
  if (core_.is_awaited(index) && part.unread == 0 && bytes <= core_.awaited.room.size()) {
    copy_bytes(core_.awaited.room.data(), message.data + before, bytes);
    core_.awaited.came = bytes;
    part.untold += bytes;
    tell_read(index);
    return false;
  }
  part.unread += bytes;
  peers_.add_piece(index, message, before);
  core_.notify(index, true);
  return true;
}

void LocalStreams::handle_open(uint32_t local_peer, Bytes message) {
  PeerOpen open;
  if (!read_message(message, open)) return void(++core_.counters.near_bad);
  const Address from{{open.from}, open.from_port}, to{{open.to}, open.to_port};
  const PeerHeader refused{.kind = PeerKind::kRefused, .socket = open.header.socket, .life = open.header.life};
  const auto refuse = [&] { peers_.send_or_queue(local_peer, refused); };
  const uint32_t listener = names_.listening().choose_in_turn(to);
  const bool honest = core_.addresses.is_own(from.host) && core_.addresses.is_own(to.host) && from.port != 0 &&
                      open.window <= kWindowMost && (from.port >= kPrivilegedPorts || peers_[local_peer].same_user);
  if (!honest) ++core_.counters.near_bad;
  if (!honest || listener == kNone) return refuse();
  if (const uint32_t old = core_.flow(to, from); old != kNone) {
    // The local peer has left that stream, or it would not begin another. A stream of another local peer is checked when its SYN arrives
    // (handle_tcp()).
    const LocalStream* const before = core_.sockets[old].local_stream.get();
    if (before == nullptr || before->state != LocalStream::State::open || before->local_peer != local_peer) return refuse();
    end(old, ECONNRESET);
  }
  ListenerPart& part = *core_.sockets[listener].listening;
  const uint32_t index = part.ready.size() < part.backlog ? core_.make(Type::stream, core_.sockets[listener].ipv6) : kNone;
  if (index == kNone) return refuse();
  Socket& child = core_.sockets[index];
  child.inherit(core_.sockets[listener]);
  child.stage = Stage::queued;
  child.listener = listener;
  child.local = to;
  child.remote = from;
  child.bound = child.named = true;
  names_.tcp_ports().use(to.host, to.port);
  core_.add_flow(index);
  child.local_stream = std::make_unique<LocalStream>();
  *child.local_stream = {.state = LocalStream::State::open, .local_peer = local_peer, .peer_socket = open.header.socket,
                         .peer_life = open.header.life, .life = next_life(), .credit = open.window,
                         .window = std::max(child.tcp.options->receive_buffer, kWindowLeast), .answer_due = true};
  child.local_stream->peer_moves = open.header.moves != 0;
  ++core_.counters.near_in;
  core_.show(index);
  part.ready.push_back(index);
  flush(index);
  core_.notify(listener, true);
}

// The network interface lets only the owner of the port send a SYN: the local peer has no such stream any longer. If this side is still
// asking, both sides call each other.
uint32_t LocalStreams::handle_syn(uint32_t index) {
  if (core_.sockets[index].local_stream->state == LocalStream::State::asking) return fall_back(index), index;
  end(index, ECONNRESET);
  return kNone;
}

void LocalStreams::handle_answer(uint32_t index, Bytes message) {
  LocalStream& part = *core_.sockets[index].local_stream;
  PeerOpened opened;
  if (part.state == LocalStream::State::closed && static_cast<uint8_t>(message[0]) == PeerKind::kOpened && read_message(message, opened)) {
    // The answer comes too late.
    return peers_.send_or_queue(part.local_peer, {.kind = PeerKind::kReset, .socket = opened.socket, .life = opened.life});
  }
  if (part.state != LocalStream::State::asking || part.open_due) return void(++core_.counters.near_bad);
  if (static_cast<uint8_t>(message[0]) == PeerKind::kRefused) {
    // Perhaps the port is another's by now.
    PeerDirectory::Entry* const place = directory_.find(ip::Protocol::kTcp, core_.sockets[index].remote);
    if (place != nullptr && !place->shared) *place = {};
    return fall_back(index);
  }
  if (!read_message(message, opened) || opened.window > kWindowMost) return void(++core_.counters.near_bad);
  part.state = LocalStream::State::open;
  part.peer_socket = opened.socket;
  part.peer_life = opened.life;
  part.credit = opened.window;
  part.peer_moves = opened.header.moves != 0;
  core_.timers.remove(index);
  ++core_.counters.near_out;
  core_.show(index);
  core_.notify(index);
}

// ---- a stream that moves to another stack (stream_moves.h)

bool LocalStreams::send_resume(uint32_t index) {
  LocalStream& part = *core_.sockets[index].local_stream;
  const PeerResume message{.header = header_to(part, PeerKind::kResume), .socket = index, .life = part.life, .token = part.move_token};
  part.resume_due = !core_.network.send_to_local_peer(part.local_peer, bytes_of(message), {});
  return !part.resume_due;
}

// If both ends ask, neither agrees.
void LocalStreams::handle_move(uint32_t index, uint64_t token) {
  LocalStream& part = *core_.sockets[index].local_stream;
  if (part.is_moving()) return;
  part.move = LocalStream::Move::leaving;
  part.move_token = token;
  flush(index);
}

bool LocalStreams::send_agreed(uint32_t index) {
  LocalStream& part = *core_.sockets[index].local_stream;
  if (!peers_.send_header(part, PeerKind::kAgreed)) return false;
  peers_.copy_all(part);  // what has come lies in the channel to the old end
  part.move = LocalStream::Move::away;
  core_.timers.set(index, core_.now + kAwayMost);
  return true;
}

void LocalStreams::handle_resume(uint32_t local_peer, Bytes message) {
  PeerResume resume;
  if (!read_message(message, resume)) return void(++core_.counters.near_bad);
  const uint32_t index = resume.header.socket;
  LocalStream* const part = core_.sockets.has(index) ? core_.sockets[index].local_stream.get() : nullptr;
  const bool known = part != nullptr && part->life == resume.header.life && part->state == LocalStream::State::open;
  const bool same = known && part->local_peer == local_peer && part->peer_socket == resume.socket && part->peer_life == resume.life;
  // Before this end has agreed, what has come lies in the channel to the old end: only that end may go on.
  const bool awaited = known && part->move_token == resume.token &&
                       (part->move == LocalStream::Move::away || (part->move == LocalStream::Move::leaving && same));
  if (!awaited && same) return;  // both ends asked, and both go on
  if (!awaited) return peers_.send_or_queue(local_peer, {.kind = PeerKind::kReset, .socket = resume.socket, .life = resume.life});
  part->peer_moves = part->peer_moves && same;  // the port of a peer that has moved leads to another stack
  part->move = LocalStream::Move::none;
  part->local_peer = local_peer;
  part->peer_socket = resume.socket;
  part->peer_life = resume.life;
  const Socket& socket = core_.sockets[index];
  const bool gone = socket.is_closing();
  core_.timers.remove(index);
  if (gone) core_.timers.set(index, core_.now + socket.tcp.options->fin_wait_2);
  if (!try_flush(index)) return core_.make_due(index);
  if (gone && part->is_over()) return drop(index);
  core_.notify(index);
}

}  // namespace unet::sockets
