// stack_options.cc - setting an option of a socket, and what that begins.
#include <cerrno>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {

// Values out of range are -EINVAL, but buffers, which are taken as near as they can be had.
int Stack::set_option(int number, Option option, int64_t value) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (option == Option::peek_offset) {
    core_.positions.set_peek_offset(static_cast<uint32_t>(number), value < 0 ? std::nullopt : std::optional(static_cast<uint32_t>(value)));
    return 0;
  }
  if (socket->type == Type::datagram) {
    tcp::Options unused;
    const int error = store_option(*socket, option, value, unused);
    if (error != 0 || value != 0) return error;
    if (option == Option::cork) uncork(static_cast<uint32_t>(number));
    if (option == Option::queue_errors4 || option == Option::queue_errors6) core_.errors.drop_errors(static_cast<uint32_t>(number));
    return error;
  }
  tcp::Options wanted = *socket->tcp.options;
  if (const int error = store_option(*socket, option, value, wanted); error != 0) return error;
  const bool others = wanted != *socket->tcp.options;
  if (others) {
    SharedOptions fresh = option_sets_.get(wanted);
    if (socket->has_connection()) socket->tcp.connection->set_options(*fresh);
    socket->tcp.options = std::move(fresh);
  }
  // Linux pushes what is queued also by the value that an option has already: MSG_MORE may hold it.
  const bool pushes = option == Option::no_delay ? value != 0 : option == Option::cork && value == 0;
  if (!socket->has_connection() || (!others && !pushes && option != Option::congestion)) return 0;
  if (option == Option::congestion) socket->tcp.connection->set_congestion(wanted.congestion, core_.now);
  if (pushes) socket->tcp.connection->push();
  // Data that had waited may go, and timers may be others.
  after(static_cast<uint32_t>(number));
  return 0;
}

int64_t Stack::option(int number, Option option) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  switch (option) {
    case Option::error: return socket->take_error();
    case Option::peek_offset: return socket->peeks_behind ? int64_t{core_.positions.peek_offset(static_cast<uint32_t>(number))} : -1;
    case Option::path_mtu: return path_mtu(*socket);
    default: return stored_option(*socket, option);
  }
}

}  // namespace unet::sockets
