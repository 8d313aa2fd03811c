// stack_fast_open.cc - data with the SYN (RFC 7413): of a socket that calls, and of one that listens.
#include <cerrno>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {

// ---- who calls

// A socket that is to connect with its first data does so now, with `data` if there is a cookie.
int64_t Stack::connect_with(int number, Bytes data, const Address& to) {
  forget_reserved();
  Socket* const socket = owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type == Type::datagram) return -EOPNOTSUPP;
  if (socket->deferred) return send(number, data);
  const bool asked = socket->fast_open_connect;
  socket->fast_open_connect = true;
  const int result = connect(number, to);
  socket->fast_open_connect = asked;
  return result == 0 ? send(number, data) : result;
}

// The SYN, which has not left, has a cookie or asks for one. True: data may go with it.
bool Stack::begin_fast_open(Socket& socket) {
  const FastOpenCache::Entry* const known = fast_open_cache_.find(socket.remote.host);
  if (known != nullptr && now_ < known->not_before) return false;
  socket.fast_open_asked = true;
  socket.tcp.connection->fast_open(known == nullptr ? Bytes{} : known->value(), known == nullptr ? uint16_t{0} : known->mss);
  return known != nullptr && known->bytes != 0;
}

// The handshake that asked for fast open is over: what has been learned of the server.
void Stack::learn_fast_open(Socket& socket, const ip::TcpView& answer) {
  socket.fast_open_asked = false;
  const tcp::Connection& connection = *socket.tcp.connection;
  if (connection.syn_resent()) {
    ++counters_.fast_open_avoided;
    return fast_open_cache_.avoid(socket.remote.host, now_);
  }
  if (!answer.options.has_fast_open) return;
  ++counters_.fast_open_learned;
  fast_open_cache_.learn(socket.remote.host, answer.options.fast_open_cookie, answer.options.mss);
}

// ---- who listens

// Between listen() and the SYN. Who has no cookie, or a wrong one, is given one, and its data comes again (RFC 7413, 4.2.2); so it is when
// too many have not finished their handshakes, as cookies can be stolen (5.1).
void Stack::answer_fast_open(uint32_t index, const ip::TcpView& segment) {
  Socket& socket = slab_[index];
  ListenerPart& part = *slab_[socket.listener].listening;
  if (part.fast_open_max == 0 || !segment.options.has_fast_open) return;
  const auto verdict = fast_open_.check(segment.options.fast_open_cookie, socket.local.host, socket.remote.host, now_);
  const bool known = verdict != FastOpenCookies::Verdict::bad;
  const bool taken = known && part.early < part.fast_open_max;
  if (!known && !segment.options.fast_open_cookie.empty()) ++counters_.fast_open_bad;
  if (known && !taken) ++counters_.fast_open_overflow;
  const FastOpenCookies::Cookie fresh = fast_open_.make(socket.local.host, socket.remote.host, now_);
  const bool tell = verdict != FastOpenCookies::Verdict::good;
  socket.tcp.connection->answer_fast_open(taken, tell ? Bytes(fresh) : Bytes{});
  if (!taken) return;
  ++counters_.fast_open_in;
  ++part.early;
  socket.early = true;
}

}  // namespace unet::sockets
