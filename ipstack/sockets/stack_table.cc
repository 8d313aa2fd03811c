// stack_table.cc - what an application asks of its sockets: queues, and tcp::Info.
#include <algorithm>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {

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
  // As Linux has it: how many wait for accept(), and how many may.
  return {.state = state, .unacked = static_cast<uint32_t>(socket->listening->ready.size()), .sacked = socket->listening->backlog};
}

}  // namespace unet::sockets
