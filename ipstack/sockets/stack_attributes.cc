// stack_attributes.cc - what an application sets and asks of a socket: options, errors, addresses, events, queues, and tcp::Info.
#include <algorithm>
#include <cerrno>
#include <optional>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {

// ---- options

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

// ---- names, and events

int Stack::local_address(int number, Address& address) const {
  const Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  address = socket->local;
  if (address.host.is_unspecified() && !socket->ipv6) address.host = ip::ipv4_address(0u);
  return 0;
}

int Stack::remote_address(int number, Address& address) const {
  const Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  const bool has = socket->type == Type::datagram ? socket->connected
                   : socket->local_stream != nullptr
                       ? socket->local_stream->state == LocalStream::State::open && !socket->local_stream->is_over()
                       : socket->has_connection() && !is_over(socket->tcp.connection->state()) &&
                             socket->tcp.connection->state() != tcp::State::syn_sent;
  if (!has) return -ENOTCONN;
  address = socket->remote;
  return 0;
}

const tcp::Connection* Stack::connection(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  return socket != nullptr && socket->has_connection() ? &*socket->tcp.connection : nullptr;
}

uint32_t Stack::events(int number) noexcept {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return Events::kError | Events::kHangUp;
  const uint32_t events = core_.events_of(static_cast<uint32_t>(number));
  if ((socket->told & ~events) != 0) socket->told = static_cast<uint16_t>(socket->told & events);
  return events;
}

// ---- queues

Stack::Queued Stack::queued(int number) noexcept {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return {};
  if (socket->listening != nullptr) return {static_cast<uint32_t>(socket->listening->ready.size()), socket->listening->embryos};
  if (socket->type == Type::datagram) {
    DatagramQueue& queue = socket->datagram->queue;
    if (queue.empty()) return {};
    const DatagramQueue::Datagram first = queue.front();
    const auto bytes = static_cast<uint32_t>(first.payload.size());
    return {.receive = first.segment != 0 && !socket->datagram->coalesce ? std::min(first.segment, bytes) : bytes};
  }
  SocketRecord record;
  fill_queues(*socket, record);
  return {record.receive_queue, record.send_queue};
}

tcp::Info Stack::info(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  if (socket == nullptr) return {};
  if (socket->has_connection()) return socket->tcp.connection->info(core_.now);
  const auto state = static_cast<tcp::State>(state_of(*socket));
  if (socket->local_stream != nullptr) return local_stream_info(*socket->local_stream, state, core_.now);
  if (socket->listening == nullptr) return {.state = state};
  // The length of the accept queue, and its maximum, as in Linux.
  return {.state = state, .unacked = static_cast<uint32_t>(socket->listening->ready.size()), .sacked = socket->listening->backlog};
}

}  // namespace unet::sockets
