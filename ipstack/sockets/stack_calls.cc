// stack_calls.cc - calls of streams, whatever carries them.
#include <algorithm>
#include <cerrno>

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

// As Linux's tcp_disconnect().
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

}  // namespace unet::sockets
