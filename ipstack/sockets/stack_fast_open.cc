// stack_fast_open.cc - connect() and send() at once (RFC 7413).
#include <cerrno>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {

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

}  // namespace unet::sockets
