// stack_options.cc - options of a socket and what setting them begins; errors and ends of sends that wait until they are asked for.
#include <algorithm>
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
    case Option::path_mtu: return socket->type == Type::datagram ? datagrams_.path_mtu(*socket) : path_mtu(*socket);
    default: return stored_option(*socket, option);
  }
}

// IP_MTU of a stream.
int64_t Stack::path_mtu(const Socket& socket) {
  if (!socket.has_connection() && socket.local_stream == nullptr) return -ENOTCONN;
  const ip::IpAddress& to = socket.remote.host;
  if (socket.local_stream != nullptr || core_.addresses.is_own(to)) return HostAddresses::own_path_mtu(to.is_ipv4());
  const uint32_t known = socket.tcp.connection->info(core_.now).path_mtu(!to.is_ipv4());
  return known != 0 ? known : std::min(core_.addresses.mtu_from(socket.local.host), path_mtus_.mtu(to, core_.now));
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
