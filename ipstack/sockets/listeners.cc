// listeners.cc - listen(), accept(), and the SYNs between them.
#include "ipstack/sockets/listeners.h"

#include <algorithm>
#include <cerrno>
#include <memory>

namespace unet::sockets {

int Listeners::listen(uint32_t index, int backlog) {
  Socket& socket = core_.sockets[index];
  if (socket.type == Type::datagram) return -EOPNOTSUPP;
  if (socket.has_connection() || socket.local_stream != nullptr) return -EINVAL;
  const uint32_t wanted = backlog < 0 ? 4096 : static_cast<uint32_t>(std::clamp(backlog, 1, 4096));
  if (socket.listening != nullptr) {
    socket.listening->backlog = wanted;
    return 0;
  }
  if (const int error = names_.bind_free(index); error != 0) return -error;
  for (uint32_t i = names_.listening().first(socket.local.port); i != kNone; i = core_.sockets[i].listening->next) {
    const Socket& other = core_.sockets[i];
    const bool meet = other.local.host == socket.local.host && (names_.families_of(other) & names_.families_of(socket)) != 0;
    if (meet && !names_.tcp_ports().is_share(socket.local.host, socket.local.port)) return -EADDRINUSE;
  }
  socket.listening = std::make_unique<ListenerPart>();
  names_.listening().link(index);
  if (names_.tell_accepts_new_flows(socket) == EADDRINUSE) {
    names_.listening().unlink(index);
    socket.listening.reset();
    return -EADDRINUSE;
  }
  socket.listening->backlog = wanted;
  socket.listening->fast_open_max = socket.fast_open_max;
  core_.show(index);
  return 0;
}

int Listeners::accept(uint32_t listener, Address* peer) {
  Socket& socket = core_.sockets[listener];
  if (socket.type == Type::datagram) return -EOPNOTSUPP;
  if (socket.listening == nullptr) return -EINVAL;
  if (socket.listening->ready.empty()) return -EAGAIN;
  const uint32_t index = socket.listening->ready.front();
  socket.listening->ready.pop_front();
  Socket& accepted = core_.sockets[index];
  accepted.listener = kNone;
  accepted.stage = Stage::owned;
  if (socket.peeks_behind) core_.positions.set_peek_offset(index, core_.positions.peek_offset(listener));
  if (peer != nullptr) *peer = accepted.remote;
  core_.notify(index);
  return static_cast<int>(index);
}

void Listeners::end(uint32_t listener) {
  Socket& socket = core_.sockets[listener];
  names_.listening().unlink(listener);
  socket.draining = false;
  static_cast<void>(names_.tell_accepts_new_flows(socket));
  for (uint32_t i = 0; i < core_.sockets.end(); ++i) {
    if (!core_.sockets.has(i) || core_.sockets[i].listener != listener) continue;
    Socket& child = core_.sockets[i];
    if (child.stage == Stage::embryo) names_.listening().end_handshake(listener);
    child.listener = kNone;
    child.linger = 0;
    if (child.local_stream != nullptr) local_streams_.close(i);
    else tcp_.close(i);
  }
  socket.listening.reset();
}

// A socket for a handshake that a peer has begun.
uint32_t Listeners::make_embryo(uint32_t listener, const Address& local, const Address& remote) {
  const uint32_t index = core_.make(Type::stream, core_.sockets[listener].ipv6);
  if (index == kNone) return kNone;
  Socket& child = core_.sockets[index];
  child.stage = Stage::embryo;
  child.listener = listener;
  child.inherit(core_.sockets[listener]);
  child.local = local;
  child.remote = remote;
  child.bound = child.named = true;
  names_.tcp_ports().use(local.host, local.port);
  tcp_.make_connection(child);
  core_.add_flow(index);
  names_.listening().begin_handshake(listener);
  return index;
}

void Listeners::handle_syn(uint32_t listener, const Address& local, const Address& remote, const ip::TcpView& segment, uint8_t ecn,
                           const std::optional<tcp::Sequence>& begin) {
  const ListenerPart& part = *core_.sockets[listener].listening;
  // RFC 9293, 3.10.7.2 leaves it open: the peer tries again, when accept() may have been called.
  if (part.ready.size() >= part.backlog) return void(++core_.counters.listen_overflow);
  if (names_.listening().handshakes() >= core_.options.half_open_max || part.embryos >= std::max(part.backlog, 16u)) {
    return send_cookie(core_.sockets[listener], local, remote, segment);
  }
  const uint32_t index = make_embryo(listener, local, remote);
  if (index == kNone) return void(++core_.counters.listen_overflow);
  Socket& child = core_.sockets[index];
  const ConnectionHashes& hashes = tcp_.hashes();
  child.tcp.connection->listen(hashes.initial_sequence(local, remote, core_.now, begin), hashes.timestamp_offset(local, remote));
  tcp_.fast_open().answer(child, *core_.sockets[listener].listening, segment, core_.now);
  tcp_.handle_segment(index, segment, ecn);
}

void Listeners::send_cookie(const Socket& listener, const Address& local, const Address& remote, const ip::TcpView& segment) {
  const tcp::Options& own = *listener.tcp.options;
  const uint32_t header = local.host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes;
  tcp::Segment answer;
  answer.fields = {.source_port = local.port, .destination_port = remote.port,
                   .sequence = {cookies_.make(local, remote, segment, core_.now)},
                   .acknowledgement = segment.sequence + 1,
                   .flags = ip::TcpFlags::kSyn | ip::TcpFlags::kAck,
                   .window = static_cast<uint16_t>(std::min(own.receive_buffer, 0xFFFFu))};
  ip::TcpOptions& options = answer.fields.options;
  options.mss = listener.mss(core_.addresses.mtu_from(local.host) - header - static_cast<uint32_t>(sizeof(ip::TcpHeader)));
  if (own.timestamps && segment.options.has_timestamps) {
    options.has_timestamps = true;
    const uint32_t clock = tcp::Connection::clock(tcp_.hashes().timestamp_offset(local, remote), core_.now);
    options.timestamp = SynCookies::timestamp(clock, segment.options);
    options.timestamp_echo = segment.options.timestamp;
    options.sack_permitted = own.sack && segment.options.sack_permitted;
    if (own.window_scaling && segment.options.window_scale != ip::TcpOptions::kNoScale) options.window_scale = tcp::window_scale(own);
  }
  ++core_.counters.cookies_sent;
  tcp_.output().send(nullptr, local, remote, answer);
}

// A SYN that comes twice may get a cookie, and then, when there is room again, an embryo with other numbers and options. A peer that took
// the cookie says nothing that the embryo understands.
SynCookies::Answer Listeners::cookie_of_embryo(uint32_t index, const ip::TcpView& segment) const noexcept {
  const Socket& socket = core_.sockets[index];
  const bool waits = !socket.early && socket.tcp.connection->state() == tcp::State::syn_received;
  if (!waits || !cookies_.has_recent(core_.now)) return SynCookies::Answer::none;
  const bool plain = segment.has(ip::TcpFlags::kAck) && !segment.has(ip::TcpFlags::kSyn) && !segment.has(ip::TcpFlags::kRst);
  if (!plain || socket.tcp.connection->under_way(segment.acknowledgement - 1)) return SynCookies::Answer::none;
  return cookies_.check(socket.local, socket.remote, segment, core_.now);
}

bool Listeners::take_cookie(uint32_t listener, const Address& local, const Address& remote, const ip::TcpView& segment) {
  if (!cookies_.has_recent(core_.now)) return false;
  const SynCookies::Answer answer = cookies_.check(local, remote, segment, core_.now);
  if (answer != SynCookies::Answer::first) {
    ++core_.counters.cookies_bad;
    return answer == SynCookies::Answer::later;
  }
  const ListenerPart& part = *core_.sockets[listener].listening;
  if (part.ready.size() >= part.backlog) {
    ++core_.counters.listen_overflow;
    return true;  // it is asked again with the peer's data
  }
  const uint32_t index = make_embryo(listener, local, remote);
  if (index == kNone) return true;
  ++core_.counters.cookies_taken;
  // The connection sees the SYN again, and its SYN-ACK has left already.
  tcp::Connection& connection = *core_.sockets[index].tcp.connection;
  connection.listen(segment.acknowledgement - 1, tcp_.hashes().timestamp_offset(local, remote));
  const ip::TcpView syn = SynCookies::syn_of(segment);
  connection.handle_segment(syn, core_.now);
  tcp::Segment sent;
  while (connection.poll_segment(core_.now, 1, sent)) continue;
  tcp_.handle_segment(index, segment, 0);
  return true;
}

}  // namespace unet::sockets
