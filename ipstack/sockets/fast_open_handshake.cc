// fast_open_handshake.cc - TCP Fast Open in the handshakes of both sides.
#include "ipstack/sockets/fast_open_handshake.h"

namespace unet::sockets {

bool FastOpen::begin(Socket& socket, Nanoseconds now) {
  const FastOpenCache::Entry* const known = cache_.find(socket.remote.host);
  if (known != nullptr && now < known->not_before) return false;
  socket.fast_open_asked = true;
  socket.tcp.connection->fast_open(known == nullptr ? Bytes{} : known->value(), known == nullptr ? uint16_t{0} : known->mss);
  return known != nullptr && known->bytes != 0;
}

void FastOpen::learn(Socket& socket, const ip::TcpView& answer, Nanoseconds now) {
  socket.fast_open_asked = false;
  const tcp::Connection& connection = *socket.tcp.connection;
  if (connection.syn_resent()) {
    ++counters_.fast_open_avoided;
    return cache_.avoid(socket.remote.host, now);
  }
  if (!answer.options.has_fast_open) return;
  ++counters_.fast_open_learned;
  cache_.learn(socket.remote.host, answer.options.fast_open_cookie, answer.options.mss);
}

void FastOpen::answer(Socket& socket, ListenerPart& part, const ip::TcpView& segment, Nanoseconds now) {
  if (part.fast_open_max == 0 || !segment.options.has_fast_open) return;
  const auto verdict = cookies_.check(segment.options.fast_open_cookie, socket.local.host, socket.remote.host, now);
  const bool known = verdict != FastOpenCookies::Verdict::bad;
  const bool taken = known && part.early < part.fast_open_max;
  if (!known && !segment.options.fast_open_cookie.empty()) ++counters_.fast_open_bad;
  if (known && !taken) ++counters_.fast_open_overflow;
  const FastOpenCookies::Cookie fresh = cookies_.make(socket.local.host, socket.remote.host, now);
  const bool tell = verdict != FastOpenCookies::Verdict::good;
  socket.tcp.connection->answer_fast_open(taken, tell ? Bytes(fresh) : Bytes{});
  if (!taken) return;
  ++counters_.fast_open_in;
  ++part.early;
  socket.early = true;
}

}  // namespace unet::sockets
