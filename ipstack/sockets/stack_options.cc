// stack_options.cc - options of a socket and what setting them begins; errors and ends of sends that wait until they are asked for.
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
    if (option == Option::cork) datagrams_.uncork(static_cast<uint32_t>(number));
    if (option == Option::queue_errors4 || option == Option::queue_errors6) core_.errors.drop_errors(static_cast<uint32_t>(number));
    return error;
  }
  return tcp_.set_option(static_cast<uint32_t>(number), option, value);
}

int64_t Stack::option(int number, Option option) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  switch (option) {
    case Option::error: return socket->take_error();
    case Option::peek_offset: return socket->peeks_behind ? int64_t{core_.positions.peek_offset(static_cast<uint32_t>(number))} : -1;
    case Option::path_mtu: return socket->type == Type::datagram ? datagrams_.path_mtu(*socket) : tcp_.path_mtu(*socket);
    default: return stored_option(*socket, option);
  }
}

// ---- errors

void Stack::end_zero_copy(int number) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr || !socket->zero_copy) return;
  core_.errors.push_send(static_cast<uint32_t>(number));
  core_.notify(static_cast<uint32_t>(number), true);
}

std::optional<QueuedError> Stack::take_queued_error(int number) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr || !socket->has_errors) return std::nullopt;
  QueuedError error = core_.errors.pop(static_cast<uint32_t>(number));
  if (socket->has_errors) core_.notify(static_cast<uint32_t>(number));
  return error;
}

}  // namespace unet::sockets
