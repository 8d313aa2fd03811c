// stack_calls.cc - calls that connect a socket, and calls that move data: each goes to the part of the socket's kind.
#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "ipstack/sockets/stack.h"
#include "unet/base/bytes.h"

namespace unet::sockets {

int Stack::connect(int number, const Address& to) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  const auto index = static_cast<uint32_t>(number);
  if (socket->listening != nullptr) return -EISCONN;
  if (!socket->fits(to)) return socket->ipv6 ? -ENETUNREACH : -EAFNOSUPPORT;
  if (socket->type == Type::datagram) return datagrams_.connect(index, to);
  if (socket->local_stream != nullptr || socket->has_connection()) return connect_again(index);
  if (const int error = tcp_.take_ends(index, to); error != 0) return error;
  if (core_.addresses.is_own(socket->remote.host) && local_streams_.connect(index)) return -EINPROGRESS;
  return tcp_.open(index) ? 0 : -EINPROGRESS;
}

// Returns the result of the call before, once, as Linux does (inet_stream_connect()). After a failure the next call begins anew.
int Stack::connect_again(uint32_t index) {
  Socket& socket = core_.sockets[index];
  if (!socket.connecting || socket.deferred) return -EISCONN;
  const LocalStream* const stream = socket.local_stream.get();
  if (stream != nullptr ? stream->state == LocalStream::State::asking : is_opening(socket.tcp.connection->state())) return -EALREADY;
  socket.connecting = false;
  // A stream that a local peer has opened and ended at once has been connected: what became of it is for the next call.
  const bool opened = stream != nullptr && stream->peer_life != 0;
  if (stream != nullptr ? opened : socket.tcp.connection->state() != tcp::State::closed) return 0;
  const int error = socket.take_error();
  forget_connection(index);
  return error != 0 ? -error : -ECONNABORTED;
}

// A connection that is over: the socket is as it was before connect(), also without a port unless bind() gave it that.
void Stack::forget_connection(uint32_t index) {
  Socket& socket = core_.sockets[index];
  core_.timers.remove(index);
  core_.remove_flow(index);
  if (socket.has_connection()) socket.tcp.connection.reset();
  local_streams_.forget(socket);
  core_.positions.forget_urgent(index);
  socket.urgent_news = socket.came = false;
  socket.shut_read = socket.shut_write = socket.fast_open_asked = socket.connecting = socket.deferred = false;
  socket.told = 0;
  socket.remote = {};
  if (!socket.named) {
    names_.give_back(socket);
    socket.local = {};
  }
  core_.show(index);
}

// Disconnects a stream as Linux's tcp_disconnect() does.
int Stack::disconnect(int number) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  const auto index = static_cast<uint32_t>(number);
  if (socket->type == Type::datagram) return connect(number, {});
  const uint16_t port = socket->local.port;
  if (socket->listening != nullptr) {
    listeners_.end(index);
  } else if (socket->local_stream != nullptr) {
    local_streams_.disconnect(index);
    forget_connection(index);
  } else if (socket->has_connection()) {
    tcp_.disconnect(index);
    forget_connection(index);
  }
  socket->local.port = port;  // as Linux goes on to call it, though it may be another's
  core_.show(index);
  core_.notify(index);
  return 0;
}

// A socket that is to connect with its first data does so now, with `data` if there is a cookie.
int64_t Stack::connect_with(int number, Bytes data, const Address& to) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type == Type::datagram) return -EOPNOTSUPP;
  if (socket->deferred) return send(number, data);
  const bool asked = socket->fast_open_connect;
  socket->fast_open_connect = true;
  const int result = connect(number, to);
  socket->fast_open_connect = asked;
  return result == 0 ? send(number, data) : result;
}

// ---- data

void Stack::return_error(int number, int error) noexcept {
  Socket* const socket = core_.owned(number);
  if (socket != nullptr && error != EAGAIN && error != EPIPE) socket->error = error;  // those come again by themselves
}

int64_t Stack::send(int number, Bytes data, bool more, bool urgent) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type == Type::datagram) return datagrams_.send(static_cast<uint32_t>(number), data, more);
  if (socket->error != 0) return -socket->take_error();
  if (socket->local_stream != nullptr) {
    socket->told = static_cast<uint16_t>(socket->told & ~Events::kOut);
    return local_streams_.send(static_cast<uint32_t>(number), data, urgent);
  }
  return tcp_.send(static_cast<uint32_t>(number), data, more, urgent);
}

int64_t Stack::receive(int number, MutableBytes data, bool peek) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type == Type::datagram) return datagrams_.receive(static_cast<uint32_t>(number), data, nullptr, peek, nullptr);
  if (socket->local_stream != nullptr) return local_streams_.receive(static_cast<uint32_t>(number), data, peek);
  return tcp_.receive(static_cast<uint32_t>(number), data, peek);
}

int64_t Stack::send_to(int number, Bytes data, const Address& to, const Sending& how) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type != Type::datagram) return socket->has_connection() ? -EISCONN : -ENOTCONN;
  return datagrams_.send_to(static_cast<uint32_t>(number), data, to, how);
}

int64_t Stack::receive_from(int number, MutableBytes data, Address* from, bool peek, Received* what) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type != Type::datagram) return receive(number, data, peek);
  return datagrams_.receive(static_cast<uint32_t>(number), data, from, peek, what);
}

int Stack::gather(int number, std::span<Bytes> pieces) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->local_stream != nullptr && socket->local_stream->unread != 0) return local_streams_.gather(*socket, pieces);
  if (!socket->has_connection() && socket->local_stream == nullptr) return -ENOTCONN;
  if (socket->local_stream != nullptr || socket->tcp.connection->readable() == 0) return static_cast<int>(receive(number, {}, true));
  return static_cast<int>(socket->tcp.connection->gather(pieces));
}

void Stack::consume(int number, uint32_t bytes) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket != nullptr) consume_at(static_cast<uint32_t>(number), bytes);
}

void Stack::consume_at(uint32_t index, uint32_t bytes) {
  const Socket& socket = core_.sockets[index];
  if (socket.local_stream != nullptr) return local_streams_.consume(index, bytes);
  if (socket.has_connection()) tcp_.consume(index, bytes);
}

// ---- the urgent byte (RFC 6093), as Linux has it: beside the stream, which leaves it out unless SO_OOBINLINE leaves it in line

// Whether the next byte is the urgent one. Only for a socket with an urgent byte.
bool Stack::is_before_urgent(int number) const noexcept {
  const bool waits = core_.has_awaited(number);  // what stands before it has come, and is to be told yet
  return !waits && core_.positions.urgent(static_cast<uint32_t>(number)).before == 0;
}

uint32_t Stack::to_urgent(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  const bool stops = socket != nullptr && socket->urgent && !socket->urgent_inline;
  return stops ? core_.positions.urgent(static_cast<uint32_t>(number)).before : ~uint32_t{0};
}

// Reads the urgent byte as Linux's tcp_recv_urg() does.
int64_t Stack::receive_urgent(int number, MutableBytes data, bool peek) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type == Type::datagram) return -EOPNOTSUPP;
  if (socket->listening != nullptr) return -ENOTCONN;
  const auto index = static_cast<uint32_t>(number);
  if (!socket->urgent || socket->urgent_inline || core_.positions.urgent(index).taken) return -EINVAL;
  Urgent& urgent = core_.positions.urgent(index);
  if (socket->unread() <= urgent.before) {
    return (socket_events(*socket) & Events::kEnded) != 0 ? 0 : -EAGAIN;
  }
  if (!data.empty()) {
    std::vector<Bytes> pieces(socket->local_stream != nullptr ? socket->local_stream->pieces.size() :
                              socket->unread() / core_.options.chunk_bytes + 2 + tcp::ZeroCopyReceive::kPiecesMore);
    pieces.resize(static_cast<size_t>(std::max(gather(number, pieces), 0)));
    size_t skip = urgent.before;
    for (const Bytes& each : pieces) {
      if (copy_behind(each, skip, data.first(1)) != 0) break;
    }
  }
  if (!peek) urgent.taken = true;
  return data.empty() ? 0 : 1;
}

// ---- sending without a copy: the application writes into the memory that a message or a segment leaves from

int Stack::reserve(int number, uint32_t bytes, MutableBytes& room) {
  forget_reserved();
  give_back_spare();
  room = {};
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (bytes == 0) return -EINVAL;
  const auto index = static_cast<uint32_t>(number);
  int result;
  if (socket->type == Type::datagram) {
    if (!socket->connected) return -EDESTADDRREQ;
    result = datagrams_.reserve(index, bytes, reserved_, room);
  } else {
    if (socket->error != 0) return -socket->take_error();
    result = socket->local_stream != nullptr ? local_streams_.reserve(index, bytes, reserved_, room)
                                             : tcp_.reserve(index, bytes, reserved_, room);
    if (result == -EAGAIN) socket->told = static_cast<uint16_t>(socket->told & ~Events::kOut);  // told again when there is room
  }
  if (result != 0) return result;
  reserved_.socket = number;
  reserved_.bytes = static_cast<uint32_t>(room.size());
  return 0;
}

int64_t Stack::commit(int number, uint32_t bytes) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (reserved_.socket != number || bytes > reserved_.bytes) return -EINVAL;
  const auto index = static_cast<uint32_t>(number);
  Reservation reserved = std::exchange(reserved_, {});
  if (socket->type == Type::datagram) return datagrams_.commit(index, bytes, reserved);
  if (socket->local_stream != nullptr) local_streams_.commit(index, bytes);
  else tcp_.commit(index, bytes, reserved);
  return bytes;
}

}  // namespace unet::sockets
