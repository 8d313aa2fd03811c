// stack_errors.cc - errors that wait until they are asked for: IP_RECVERR, and the ends of sends with MSG_ZEROCOPY.
#include "ipstack/sockets/stack.h"

namespace unet::sockets {

// As Linux's sock_queue_err_skb(): the next call is told, too.
void Stack::queue_error(uint32_t index, QueuedError error) {
  Socket& socket = slab_[index];
  socket.error = error.error;
  socket.has_errors = true;
  error_queues_[index].push(std::move(error));
  note(index);
}

void Stack::end_zero_copy(int number) {
  Socket* const socket = owned(number);
  if (socket == nullptr || !socket->zero_copy) return;
  const auto index = static_cast<uint32_t>(number);
  socket->has_errors = true;
  error_queues_[index].push_send();
  note(index);
}

// As Linux's sock_dequeue_err_skb(): what SO_ERROR would tell is what comes next.
std::optional<QueuedError> Stack::take_queued_error(int number) {
  Socket* const socket = owned(number);
  if (socket == nullptr || !socket->has_errors) return std::nullopt;
  ErrorQueue& queue = error_queues_.at(static_cast<uint32_t>(number));
  QueuedError error = queue.pop();
  socket->has_errors = !queue.empty();
  const bool next = socket->has_errors && queue.front().is_pending();
  if (next) socket->error = queue.front().error;
  else if (error.is_pending()) socket->error = 0;
  return error;
}

}  // namespace unet::sockets
