// stack_near.cc - streams between applications of one network interface, as their calls see them: no TCP, but a local channel
// (near_message.h).
//
// A payload byte is copied once into the channel and once out of it.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ipstack/sockets/near_message.h"
#include "ipstack/sockets/stack.h"
#include "unet/base/bytes.h"

namespace unet::sockets {
namespace {

constexpr uint32_t kWindowLeast = 64 * 1024;
constexpr size_t kUnsentMost = 16 * 1024;  // bytes that a stream takes though its channel is full

// False: the channel still has no room.
bool send_unsent(Network& network, NearPart& part) {
  if (part.unsent.empty()) return true;
  const NearHeader header{.kind = NearKind::kData, .urgent = part.unsent_urgent, .socket = part.peer, .life = part.peer_life};
  if (!network.send_to_neighbour(part.neighbour, bytes_of(header), part.unsent)) return false;
  part.unsent = {};
  return true;
}

}  // namespace

// The socket knows both ends. It is connected, or turns to TCP. `joined`: the question whose the port is was asked before.
void Stack::connect_near(uint32_t index, bool joined) {
  Socket& socket = slab_[index];
  socket.near = std::make_unique<NearPart>();
  NearPart& part = *socket.near;
  part.life = ++lives_;
  part.window = std::max(socket.tcp.options->receive_buffer, kWindowLeast);
  part.neighbour = whereabouts(ip::Protocol::kTcp, socket.remote).neighbour;
  part.open_due = part.neighbour != kNone;
  part.joined = joined;
  if (part.neighbour == kNone) await_neighbour(index);
  timers_.set(index, now_ + socket.tcp.options->syn_timeout);
  show(index);
  if (!after_near(index)) make_due(index);
}

int64_t Stack::send_near(uint32_t index, Bytes data, bool urgent) {
  Socket& socket = slab_[index];
  NearPart& part = *socket.near;
  if (part.state == NearPart::State::asking) return -EAGAIN;
  if (part.state == NearPart::State::closed || part.end_due || part.end_sent) return -EPIPE;
  if (part.is_moving() || (part.is_behind() && !after_near(index))) return -EAGAIN;
  NearHeader header{.kind = NearKind::kData, .socket = part.peer, .life = part.peer_life};
  size_t sent = 0;
  while (sent < data.size() && part.credit != 0) {
    size_t bytes = std::min({data.size() - sent, size_t{part.credit}, size_t{kMessageMax}});
    header.urgent = urgent && bytes == data.size() - sent;
    if (!network_.send_to_neighbour(part.neighbour, bytes_of(header), data.subspan(sent, bytes))) {
      ++counters_.no_room;
      make_due(index);
      bytes = std::min(bytes, kUnsentMost);
      part.unsent.assign(data.begin() + static_cast<ptrdiff_t>(sent), data.begin() + static_cast<ptrdiff_t>(sent + bytes));
      part.unsent_urgent = urgent && sent + bytes == data.size();
    }
    part.credit -= static_cast<uint32_t>(bytes);
    part.sent.count(static_cast<uint32_t>(bytes), now_);
    sent += bytes;
    if (!part.unsent.empty()) break;
  }
  return sent == 0 && !data.empty() ? -EAGAIN : static_cast<int64_t>(sent);
}

int64_t Stack::receive_near(uint32_t index, MutableBytes data, bool peek) {
  if (awaited_.socket == static_cast<int>(index) && awaited_.came >= 0) return take_awaited();
  Socket& socket = slab_[index];
  NearPart& part = *socket.near;
  size_t skip = peek ? peek_offset(index) : 0;
  if (socket.urgent) [[unlikely]] data = room_to_urgent(index, data, peek, skip);
  if (part.unread <= skip) {
    if (part.end_came) return 0;  // as of TCP
    if (socket.error != 0) return -take_error(socket);
    if (part.state == NearPart::State::asking) return -EAGAIN;
    return part.end_came || socket.shut_read || part.state == NearPart::State::closed ? 0 : -EAGAIN;
  }
  size_t copied = 0;
  for (const NearPart::Piece& piece : part.pieces) {
    if (copied == data.size()) break;
    copied += copy_behind(piece.bytes(), skip, data.subspan(copied));
  }
  if (peek) count_peeked(index, copied);
  else consume_near(index, static_cast<uint32_t>(copied));
  return static_cast<int64_t>(copied);
}

int Stack::gather_near(Socket& socket, std::span<Bytes> pieces) {
  const auto count = static_cast<uint32_t>(std::min(pieces.size(), socket.near->pieces.size()));
  for (uint32_t i = 0; i < count; ++i) pieces[i] = socket.near->pieces[i].bytes();
  return static_cast<int>(count);
}

void Stack::consume_near(uint32_t index, uint32_t bytes) {
  NearPart& part = *slab_[index].near;
  bytes = std::min(bytes, part.unread);
  count_read(index, bytes);
  part.unread -= bytes;
  part.untold += bytes;
  while (bytes != 0) {
    NearPart::Piece& piece = part.pieces.front();
    const auto left = static_cast<uint32_t>(piece.bytes().size());
    if (left > bytes) {
      piece.taken += bytes;
      break;
    }
    bytes -= left;
    drop_piece(part, piece);
    part.pieces.pop_front();
  }
  tell_read(index);
}

// Enough was read for the peer to hear of it.
void Stack::tell_read(uint32_t index) {
  const NearPart& part = *slab_[index].near;
  if (part.untold >= part.window / 2 && !after_near(index)) make_due(index);
}

void Stack::drop_piece(const NearPart& part, const NearPart::Piece& piece) noexcept {
  if (!piece.copy.empty()) return;
  std::deque<Neighbour::Kept>& kept = neighbours_[part.neighbour].kept;
  if (!kept.empty() && kept.front().position == piece.message.position) kept.pop_front();
  network_.release(part.neighbour, piece.message);
}

void Stack::drop_pieces(NearPart& part) noexcept {
  for (const NearPart::Piece& piece : part.pieces) drop_piece(part, piece);
  part.pieces.clear();
  part.unread = 0;
}

void Stack::shut_near(uint32_t index) {
  NearPart& part = *slab_[index].near;
  if (part.end_due || part.end_sent) return;
  part.end_due = true;
  if (!after_near(index)) make_due(index);
}

// The application is gone. What it has not read resets the stream, as of TCP (RFC 9293, 3.6.1).
void Stack::close_near(uint32_t index) {
  Socket& socket = slab_[index];
  NearPart& part = *socket.near;
  socket.owned = false;
  if (part.state == NearPart::State::open && (part.unread != 0 || socket.linger == 0)) {
    reset_near(part);
    return drop(index);
  }
  if (part.state != NearPart::State::open) return drop(index);  // what answers the question is answered by a reset
  part.end_due = !part.end_sent;
  timers_.set(index, now_ + socket.tcp.options->fin_wait_2);
  const bool blocked = !after_near(index);
  if (blocked) return make_due(index);
  if (part.end_sent && part.end_came) drop(index);
}

uint32_t Stack::events_near(const Socket& socket) const noexcept {
  const NearPart& part = *socket.near;
  uint32_t events = 0;
  if (part.state == NearPart::State::closed) return Events::kIn | Events::kOut | Events::kPeerShut | Events::kHangUp;
  if (part.state == NearPart::State::asking) return 0;
  if (part.unread != 0 || part.end_came || socket.shut_read) events |= Events::kIn;
  if (part.end_came || socket.shut_read) events |= Events::kPeerShut;
  if ((part.end_came || socket.shut_read) && socket.shut_write) events |= Events::kHangUp;
  if (socket.shut_write || (part.credit >= kWindowLeast / 3 && !socket.due && !part.is_moving())) events |= Events::kOut;
  return events;
}

// ---- what goes

bool Stack::tell_near(const NearPart& part, uint8_t kind, uint32_t value) noexcept {
  const NearCredit message{{.kind = kind, .socket = part.peer, .life = part.peer_life}, value};
  return network_.send_to_neighbour(part.neighbour, bytes_of(message).first(value == 0 ? sizeof(NearHeader) : sizeof message), {});
}

// Tells the peer what it is to know. False: no room for all of it.
bool Stack::after_near(uint32_t index) {
  Socket& socket = slab_[index];
  NearPart& part = *socket.near;
  if (part.open_due) {
    const NearOpen open{.header = {.kind = NearKind::kOpen, .moves = 1, .socket = index, .life = part.life}, .window = part.window,
                        .from_port = socket.local.port, .to_port = socket.remote.port, .from = socket.local.host.bytes,
                        .to = socket.remote.host.bytes};
    if (!network_.send_to_neighbour(part.neighbour, bytes_of(open), {})) return false;
    part.open_due = false;
  }
  if (part.answer_due) {
    const NearOpened opened{.header = {.kind = NearKind::kOpened, .moves = 1, .socket = part.peer, .life = part.peer_life},
                            .socket = index, .life = part.life, .window = part.window};
    if (!network_.send_to_neighbour(part.neighbour, bytes_of(opened), {})) return false;
    part.answer_due = false;
  }
  if (part.state != NearPart::State::open || part.is_silent()) return true;
  if (part.resume_due && !send_resume(index)) return false;
  if (!send_unsent(network_, part)) return false;
  if (part.untold >= part.window / 2) {
    if (!tell_near(part, NearKind::kCredit, part.untold)) return false;
    part.untold = 0;
  }
  if (part.end_due) {
    if (!tell_near(part, NearKind::kEnd)) return false;
    part.end_due = false;
    part.end_sent = true;
    leave_ends(index);
  }
  return part.move != NearPart::Move::leaving || send_agreed(index);
}

// When both sides have ended the stream, the same ends may begin another one, even while the application keeps its socket.
void Stack::leave_ends(uint32_t index) {
  Socket& socket = slab_[index];
  if (socket.near->is_over() && socket.found) find_flow(index, false);
}

// The neighbour will not have it: TCP says whether there is anybody.
void Stack::fall_back(uint32_t index) {
  ++counters_.near_refused;
  timers_.remove(index);
  slab_[index].near.reset();
  open_connection(index);
}

void Stack::end_near(uint32_t index, int error) {
  Socket& socket = slab_[index];
  NearPart& part = *socket.near;
  part.state = NearPart::State::closed;
  part.open_due = part.answer_due = part.end_due = false;
  timers_.remove(index);
  leave_ends(index);
  if (error != 0) socket.error = error == ECONNRESET && part.end_came ? EPIPE : error;  // as of TCP (take_failure())
  show(index);
  if (!socket.owned && socket.listener == kNone) return drop(index);
  note(index);
}

// A neighbour that does not answer, or does not end what its peer has ended and left.
void Stack::run_near_timer(uint32_t index) {
  Socket& socket = slab_[index];
  if (socket.near->state == NearPart::State::asking) return end_near(index, ETIMEDOUT);
  if (socket.near->move == NearPart::Move::away) return end_near(index, ECONNRESET);
  if (socket.near->state != NearPart::State::open || socket.owned || socket.listener != kNone) return;
  reset_near(*socket.near);
  drop(index);
}

// Tells a neighbour, now or when there is room.
void Stack::say(uint32_t neighbour, const NearHeader& header) {
  if (neighbour == kNone) return;  // the peer of a stream that moves, which is gone
  const Owed owed{neighbour, header};
  if (network_.send_to_neighbour(neighbour, owed.bytes(), {}) || owed_.size() >= kOwedMax) return;
  owed_.push_back(owed);
}

void Stack::reset_near(const NearPart& part) {
  say(part.neighbour, {.kind = NearKind::kReset, .socket = part.peer, .life = part.peer_life});
}

// ---- datagrams

// 1: it has gone; 0: it must go through the network interface; -1: there is no room.
int Stack::send_datagram_near(const Address& from, const Departure& way, Bytes data) {
  Whereabouts& where = whereabouts(ip::Protocol::kUdp, way.to);
  if (where.neighbour == kNone) return 0;
  if (!tell_marks(where.neighbour, way.marks)) return -1;
  std::array<std::byte, kNearDatagramHeadMax> head;
  const uint32_t size = emit_near_datagram(head.data(), from, way.to, way.segment);
  return network_.send_to_neighbour(where.neighbour, Bytes(head).first(size), data) ? 1 : -1;
}

// Before a datagram. Most are marked as the one before, whosever that was. False: no room.
bool Stack::tell_marks(uint32_t neighbour, Marks marks) noexcept {
  Marks& told = neighbours_[neighbour].told;
  if (told == marks) [[likely]] return true;
  const NearMarks message{.kind = NearKind::kMarks, .hop_limit = marks.hop_limit, .traffic_class = marks.traffic_class};
  if (!network_.send_to_neighbour(neighbour, bytes_of(message), {})) return false;
  told = marks;
  return true;
}

uint32_t Stack::emit_near_datagram(std::byte* at, const Address& from, const Address& to, uint16_t segment) noexcept {
  const bool four = to.host.is_ipv4();
  const uint8_t bytes = four ? 4 : 16;
  const NearDatagram head{.kind = NearKind::kDatagram, .address_bytes = bytes, .segment = segment, .from_port = from.port,
                          .to_port = to.port};
  std::memcpy(at, &head, sizeof head);
  std::byte* const addresses = at + sizeof head;
  if (four) {
    std::memcpy(addresses, from.host.bytes.data() + 12, 4);
    std::memcpy(addresses + 4, to.host.bytes.data() + 12, 4);
  } else {
    std::memcpy(addresses, from.host.bytes.data(), 16);
    std::memcpy(addresses + 16, to.host.bytes.data(), 16);
  }
  return static_cast<uint32_t>(sizeof head) + 2u * bytes;
}

}  // namespace unet::sockets
