// error_queues.cc - a socket's error queue, and the error that the socket's next call returns.
#include "ipstack/sockets/error_queues.h"

#include <utility>

namespace unet::sockets {

// Queues an error as Linux's sock_queue_err_skb() does: the next call reports it, too.
void ErrorQueues::push(uint32_t index, QueuedError error) {
  Socket& socket = sockets_[index];
  if (error.is_pending()) socket.error = error.error;
  socket.has_errors = true;
  queues_[index].push(std::move(error));
}

void ErrorQueues::push_send(uint32_t index) {
  sockets_[index].has_errors = true;
  queues_[index].push_send();
}

void ErrorQueues::drop_errors(uint32_t index) {
  Socket& socket = sockets_[index];
  if (!socket.has_errors) return;
  ErrorQueue& queue = queues_.at(index);
  queue.drop_errors();
  socket.has_errors = !queue.empty();
}

// Takes an error as Linux's sock_dequeue_err_skb() does: SO_ERROR then reports the next one in the queue.
QueuedError ErrorQueues::pop(uint32_t index) {
  Socket& socket = sockets_[index];
  ErrorQueue& queue = queues_.at(index);
  QueuedError error = queue.pop();
  socket.has_errors = !queue.empty();
  const bool next = socket.has_errors && queue.front().is_pending();
  if (next) socket.error = queue.front().error;
  else if (error.is_pending()) socket.error = 0;
  return error;
}

}  // namespace unet::sockets
