// error_queues.h - the error queues of the few sockets that have errors for recvmsg() with MSG_ERRQUEUE; used by the stack.
#pragma once

#include <cstdint>
#include <map>

#include "ipstack/sockets/error_queue.h"
#include "ipstack/sockets/slab.h"
#include "ipstack/sockets/socket.h"

namespace unet::sockets {

class ErrorQueues {
 public:
  explicit ErrorQueues(Slab<Socket>& sockets) noexcept : sockets_(sockets) {}

  void push(uint32_t index, QueuedError error);
  void push_send(uint32_t index);    // ErrorQueue::push_send()
  // The socket no longer asks for errors of datagrams.
  void drop_errors(uint32_t index);
  // Only for a socket that has an error (Socket::has_errors).
  QueuedError pop(uint32_t index);
  // The socket is no more.
  void forget(uint32_t index) {
    if (!queues_.empty()) queues_.erase(index);
  }

 private:
  Slab<Socket>& sockets_;
  std::map<uint32_t, ErrorQueue> queues_;
};

}  // namespace unet::sockets
