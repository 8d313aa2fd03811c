// socket_events.cc - events of each kind of socket.
#include "ipstack/sockets/socket_events.h"

namespace unet::sockets {
namespace {

uint32_t events_local(const Socket& socket) noexcept {
  const LocalStream& part = *socket.local_stream;
  uint32_t events = 0;
  if (part.state == LocalStream::State::closed) return Events::kIn | Events::kOut | Events::kPeerShut | Events::kHangUp;
  if (part.state == LocalStream::State::asking) return 0;
  if (part.unread != 0 || part.end_came || socket.shut_read) events |= Events::kIn;
  if (part.end_came || socket.shut_read) events |= Events::kPeerShut;
  if ((part.end_came || socket.shut_read) && socket.shut_write) events |= Events::kHangUp;
  if (socket.shut_write || (part.credit >= kWindowLeast / 3 && !socket.due && !part.is_moving())) events |= Events::kOut;
  return events;
}

}  // namespace

uint32_t socket_events(const Socket& socket) noexcept {
  uint32_t events = socket.error != 0 || socket.has_errors ? Events::kError : 0;
  if (socket.type == Type::datagram) {
    if (!socket.datagram->queue.empty() || socket.shut_read) events |= Events::kIn;
    if (socket.shut_read) events |= Events::kPeerShut;
    if (socket.shut_read && socket.shut_write) events |= Events::kHangUp;
    return socket.due ? events : events | Events::kOut;
  }
  if (socket.listening != nullptr) return events | (socket.listening->ready.empty() ? 0 : Events::kIn);
  if (socket.local_stream != nullptr) return events | events_local(socket);
  if (!socket.has_connection()) return events | Events::kOut | Events::kHangUp;
  const tcp::Connection& connection = *socket.tcp.connection;
  const tcp::Readiness ready = connection.readiness();
  if (connection.state() == tcp::State::closed || connection.state() == tcp::State::time_wait) {
    return events | Events::kIn | Events::kOut | Events::kPeerShut | Events::kHangUp;
  }
  if (socket.deferred) return events | Events::kOut;
  if (!ready.connected && !connection.is_early()) return events;
  if (ready.readable || socket.shut_read) events |= Events::kIn;
  if (ready.ended || socket.shut_read) events |= Events::kPeerShut;
  if ((ready.ended || socket.shut_read) && socket.shut_write) events |= Events::kHangUp;
  // A third of the buffer is free, as for Linux: waking a writer for each byte is of no use.
  const bool room = connection.writable() >= socket.tcp.options->send_buffer / 3 && connection.has_memory();
  if (socket.shut_write || room) events |= Events::kOut;
  return events;
}

}  // namespace unet::sockets
