// stack_listen.cc - listeners: handshakes that peers begin, cookies when there are too many of them (RFC 4987), and accept().
#include <algorithm>
#include <cerrno>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {
namespace {

// A cookie is the initial sequence number: 24 bits of hash, 5 of time, 3 of the peer's MSS. Nothing is kept of who gets one. What else its
// SYN said is in the lowest bits of our timestamp, which the peer echoes, as Linux does it (net/ipv4/syncookies.c): 4 of its window scale,
// one of SACK. They are not hashed: who lies there lies about itself. Without timestamps neither is agreed upon.
constexpr std::array<uint16_t, 8> kCookieMss{216, 536, 1220, 1380, 1440, 1460, 4312, 8940};
constexpr Nanoseconds kCookieTick = 64 * kSecond;
constexpr uint32_t kCookieTicks = 2;  // for how many a cookie is good
constexpr uint32_t kScaleBits = 15, kNoScale = kScaleBits, kSackBit = 16, kStampBits = kScaleBits | kSackBit;  // of a timestamp

uint32_t cookie_of(const HashKey& key, const Address& local, const Address& remote, uint32_t sequence, uint64_t tick,
                   uint32_t mss) noexcept {
  const uint64_t more = uint64_t{sequence} << 32 | (tick & 0xFFFFFF) << 3 | mss;
  const auto hash = static_cast<uint32_t>(keyed_hash({key.first ^ 1, key.second}, local, remote, more));
  return hash << 8 | static_cast<uint32_t>(tick & 31) << 3 | mss;
}

// The newest timestamp that says it and is not ahead of the clock.
uint32_t stamp_of(uint32_t clock, const ip::TcpOptions& syn) noexcept {
  const bool scales = syn.window_scale != ip::TcpOptions::kNoScale;
  const uint32_t scale = scales ? std::min<uint32_t>(syn.window_scale, kNoScale - 1) : kNoScale;
  const uint32_t said = scale | (syn.sack_permitted ? kSackBit : 0);
  const uint32_t stamp = (clock & ~kStampBits) | said;
  return (clock & kStampBits) < said ? stamp - (kStampBits + 1) : stamp;
}

// What it has of a peer's SYN. `stamp`: an echo of ours.
ip::TcpOptions options_of(uint32_t stamp) noexcept {
  ip::TcpOptions options;
  const uint32_t scale = stamp & kScaleBits;
  if (scale != kNoScale) options.window_scale = static_cast<uint8_t>(scale);
  options.sack_permitted = (stamp & kSackBit) != 0;
  return options;
}

}  // namespace

int Stack::listen(int number, int backlog) {
  forget_reserved();
  Socket* const socket = owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type == Type::datagram) return -EOPNOTSUPP;
  if (socket->has_connection() || socket->near != nullptr) return -EINVAL;
  const auto index = static_cast<uint32_t>(number);
  const uint32_t wanted = backlog < 0 ? 4096 : static_cast<uint32_t>(std::clamp(backlog, 1, 4096));
  if (socket->listening != nullptr) {
    socket->listening->backlog = wanted;
    return 0;
  }
  if (const int error = bind_free(index); error != 0) return -error;
  uint32_t& first = listeners_[socket->local.port];
  for (uint32_t i = first; i != kNone; i = slab_[i].listening->next) {
    const bool meet = slab_[i].local.host == socket->local.host && (families_of(slab_[i]) & families_of(*socket)) != 0;
    if (meet && !tcp_ports_.is_share(socket->local.host, socket->local.port)) return -EADDRINUSE;
  }
  socket->listening = std::make_unique<ListenerPart>();
  socket->listening->next = first;
  first = index;
  if (tell_accepts_new_flows(*socket) == EADDRINUSE) {
    first = socket->listening->next;
    socket->listening.reset();
    return -EADDRINUSE;
  }
  socket->listening->backlog = wanted;
  socket->listening->fast_open_max = socket->fast_open_max;
  show(index);
  return 0;
}

int Stack::accept(int number, Address* peer) {
  forget_reserved();
  Socket* const socket = owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type == Type::datagram) return -EOPNOTSUPP;
  if (socket->listening == nullptr) return -EINVAL;
  if (socket->listening->ready.empty()) return -EAGAIN;
  const uint32_t index = socket->listening->ready.front();
  socket->listening->ready.pop_front();
  Socket& accepted = slab_[index];
  accepted.listener = kNone;
  accepted.waits = false;
  accepted.owned = true;
  if (socket->peeks_behind) set_peek_offset(index, peek_offset(static_cast<uint32_t>(number)));
  if (peer != nullptr) *peer = accepted.remote;
  note(index);
  return static_cast<int>(index);
}

// Of those at that port that take new connections, or all if none does: the one that `choice` says.
uint32_t Stack::listener_at(const Address& local, uint32_t choice) const noexcept {
  const uint32_t first = listeners_[local.port];
  const auto fits = [&](const Socket& socket) {
    const bool family = local.host.is_ipv4() ? !socket.only_ipv6 : socket.ipv6;
    return family && (socket.local.host.is_unspecified() || socket.local.host == local.host);
  };
  if (first == kNone || slab_[first].listening->next == kNone) return first != kNone && fits(slab_[first]) ? first : kNone;
  uint32_t count = 0, takers = 0;
  for (uint32_t i = first; i != kNone; i = slab_[i].listening->next) {
    count += fits(slab_[i]) ? 1 : 0;
    takers += fits(slab_[i]) && !slab_[i].passes ? 1 : 0;
  }
  if (count == 0) return kNone;
  uint32_t before = choice % (takers != 0 ? takers : count);
  for (uint32_t i = first;; i = slab_[i].listening->next) {
    if (fits(slab_[i]) && (takers == 0 || !slab_[i].passes) && before-- == 0) return i;
  }
}

uint32_t Stack::listener_in_turn(const Address& local) noexcept {
  const uint32_t first = listeners_[local.port];
  return first == kNone ? kNone : listener_at(local, slab_[first].listening->turns++);
}

// What nobody has accepted is reset.
void Stack::end_listener(uint32_t listener) {
  Socket& socket = slab_[listener];
  uint32_t* at = &listeners_[socket.local.port];
  while (*at != listener) at = &slab_[*at].listening->next;
  *at = socket.listening->next;
  static_cast<void>(tell_accepts_new_flows(socket));
  for (uint32_t i = 0; i < slab_.end(); ++i) {
    if (!slab_.has(i) || slab_[i].listener != listener) continue;
    Socket& child = slab_[i];
    if (!child.waits) --embryos_;
    child.listener = kNone;
    child.waits = false;
    if (child.near != nullptr) {
      child.linger = 0;
      close_near(i);
    } else {
      child.tcp.connection->abort();
      after(i);
    }
  }
  socket.listening.reset();
}

// What a listener's options mean for its connections.
void Stack::inherit(Socket& child, const Socket& parent) {
  child.tcp.options = parent.tcp.options;
  child.hop_limit = parent.hop_limit;
  child.traffic_class = parent.traffic_class;
  child.max_segment = parent.max_segment;
  child.keep_idle = parent.keep_idle;
  child.linger = parent.linger;
  child.reuse = parent.reuse;
  child.reuse_port = parent.reuse_port;
  child.zero_copy = parent.zero_copy;
  child.urgent_inline = parent.urgent_inline;
  child.only_ipv6 = parent.only_ipv6;
}

// A socket for a handshake that a peer has begun.
uint32_t Stack::make_embryo(uint32_t listener, const Address& local, const Address& remote) {
  const uint32_t index = new_socket(Type::stream, slab_[listener].ipv6);
  if (index == kNone) return kNone;
  const Socket& parent = slab_[listener];
  Socket& child = slab_[index];
  child.owned = false;
  child.listener = listener;
  inherit(child, parent);
  child.local = local;
  child.remote = remote;
  child.bound = child.named = true;
  tcp_ports_.use(local.host, local.port);
  make_connection(child);
  find_flow(index, true);
  ++parent.listening->embryos;
  ++embryos_;
  return index;
}

void Stack::handle_syn(uint32_t listener, const Address& local, const Address& remote, const ip::TcpView& segment, uint8_t ecn,
                       const std::optional<tcp::Sequence>& begin) {
  const ListenerPart& part = *slab_[listener].listening;
  // RFC 9293, 3.10.7.2 leaves it open: the peer tries again, when accept() may have been called.
  if (part.ready.size() >= part.backlog) return void(++counters_.listen_overflow);
  if (embryos_ >= options_.half_open_max || part.embryos >= std::max(part.backlog, 16u)) {
    return send_cookie(slab_[listener], local, remote, segment);
  }
  const uint32_t index = make_embryo(listener, local, remote);
  if (index == kNone) return void(++counters_.listen_overflow);
  slab_[index].tcp.connection->listen(initial_sequence(local, remote, begin), timestamp_offset(local, remote));
  answer_fast_open(index, segment);
  handle_connection(index, segment, ecn);
}

// An embryo has come of age, or died.
void Stack::embryo_changed(uint32_t index) {
  Socket& socket = slab_[index];
  const tcp::State state = socket.tcp.connection->state();
  if (state == tcp::State::closed) return drop(index);
  if (!is_synchronized(state) && !socket.early) return;
  Socket& listener = slab_[socket.listener];
  socket.waits = true;
  --listener.listening->embryos;
  --embryos_;
  ++counters_.connections_in;
  const uint32_t parent = socket.listener;
  listener.listening->ready.push_back(index);
  note(parent, true);
}

void Stack::send_cookie(const Socket& listener, const Address& local, const Address& remote, const ip::TcpView& segment) {
  const tcp::Options& own = *listener.tcp.options;
  const uint16_t asked = segment.options.mss != 0 ? segment.options.mss : (local.host.is_ipv4() ? uint16_t{536} : uint16_t{1220});
  uint32_t mss = 0;
  while (mss + 1 < kCookieMss.size() && kCookieMss[mss + 1] <= asked) ++mss;
  const uint64_t tick = now_ / kCookieTick;
  const uint32_t header = local.host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes;
  tcp::Segment answer;
  answer.fields = {.source_port = local.port, .destination_port = remote.port,
                   .sequence = {cookie_of(key_, local, remote, segment.sequence.value, tick, mss)},
                   .acknowledgement = segment.sequence + 1,
                   .flags = ip::TcpFlags::kSyn | ip::TcpFlags::kAck,
                   .window = static_cast<uint16_t>(std::min(own.receive_buffer, 0xFFFFu))};
  ip::TcpOptions& options = answer.fields.options;
  options.mss = listener.mss(mtu_from(local.host) - header - static_cast<uint32_t>(sizeof(ip::TcpHeader)));
  if (own.timestamps && segment.options.has_timestamps) {
    options.has_timestamps = true;
    options.timestamp = stamp_of(tcp::Connection::clock(timestamp_offset(local, remote), now_), segment.options);
    options.timestamp_echo = segment.options.timestamp;
    options.sack_permitted = own.sack && segment.options.sack_permitted;
    if (own.window_scaling && segment.options.window_scale != ip::TcpOptions::kNoScale) options.window_scale = tcp::window_scale(own);
  }
  cookie_at_ = now_;
  asked_place(local, remote) = flows_.hash(local, remote);
  ++counters_.cookies_sent;
  send_segment(nullptr, local, remote, answer, nullptr);
}

// Whether cookies that were sent may be answered yet.
bool Stack::awaits_cookies() const noexcept { return cookie_at_ != 0 && now_ - cookie_at_ <= kCookieTicks * kCookieTick; }

// Who was sent a cookie and has not answered it yet, as far as memory of a fixed size goes: what he says may come before the first that he
// has said, from which alone a cookie can be known. A reset would end a connection that is good.
uint32_t& Stack::asked_place(const Address& local, const Address& remote) noexcept {
  if (asked_.empty()) asked_.resize(kAskedMax);
  return asked_[flows_.hash(local, remote) % kAskedMax];
}

Stack::CookieAnswer Stack::answers_cookie(const Address& local, const Address& remote, const ip::TcpView& segment) const noexcept {
  const uint32_t cookie = segment.acknowledgement.value - 1;
  const uint64_t now_tick = now_ / kCookieTick;
  const uint64_t age = (now_tick - (cookie >> 3 & 31)) & 31;
  const bool right = age < kCookieTicks && cookie_of(key_, local, remote, segment.sequence.value - 1, now_tick - age, cookie & 7) == cookie;
  if (right) return CookieAnswer::first;
  const uint32_t hash = flows_.hash(local, remote);
  return asked_[hash % kAskedMax] == hash ? CookieAnswer::later : CookieAnswer::none;
}

// A SYN that comes twice may be answered by a cookie, and then, when there is room again, by an embryo, of other numbers and options. The
// peer has taken what came first: if that was the cookie, the embryo understands nothing that it says, and is to go.
Stack::CookieAnswer Stack::overtakes_by_cookie(uint32_t index, const ip::TcpView& segment) const noexcept {
  const Socket& socket = slab_[index];
  const bool embryo = socket.listener != kNone && !socket.waits && !socket.early;
  if (!embryo || !awaits_cookies() || socket.tcp.connection->state() != tcp::State::syn_received) return CookieAnswer::none;
  const bool plain = segment.has(ip::TcpFlags::kAck) && !segment.has(ip::TcpFlags::kSyn) && !segment.has(ip::TcpFlags::kRst);
  if (!plain || socket.tcp.connection->under_way(segment.acknowledgement - 1)) return CookieAnswer::none;
  return answers_cookie(socket.local, socket.remote, segment);
}

// An ACK for no connection may be the answer to a cookie; then there is one. True: it is answered by nothing else.
bool Stack::take_cookie(uint32_t listener, const Address& local, const Address& remote, const ip::TcpView& segment) {
  if (!awaits_cookies()) return false;
  const CookieAnswer answer = answers_cookie(local, remote, segment);
  if (answer != CookieAnswer::first) {
    ++counters_.cookies_bad;
    return answer == CookieAnswer::later;
  }
  const uint32_t cookie = segment.acknowledgement.value - 1;
  const ListenerPart& part = *slab_[listener].listening;
  if (part.ready.size() >= part.backlog) {
    ++counters_.listen_overflow;
    return true;  // it is asked again with the peer's data
  }
  const uint32_t index = make_embryo(listener, local, remote);
  if (index == kNone) return true;
  asked_place(local, remote) = 0;
  ++counters_.cookies_taken;
  // What was not kept is told again: the SYN, of which the SYN-ACK has left already.
  tcp::Connection& connection = *slab_[index].tcp.connection;
  connection.listen({cookie}, timestamp_offset(local, remote));
  ip::TcpView syn;
  syn.source_port = remote.port;
  syn.destination_port = local.port;
  syn.sequence = segment.sequence - 1;
  syn.flags = ip::TcpFlags::kSyn;
  syn.window = segment.window;
  if (segment.options.has_timestamps) {
    syn.options = options_of(segment.options.timestamp_echo);
    syn.options.has_timestamps = true;
    syn.options.timestamp = segment.options.timestamp;
  }
  syn.options.mss = kCookieMss[cookie & 7];
  connection.handle_segment(syn, now_);
  tcp::Segment sent;
  while (connection.poll_segment(now_, 1, sent)) continue;
  handle_connection(index, segment, 0);
  return true;
}

}  // namespace unet::sockets
