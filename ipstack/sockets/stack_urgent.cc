// stack_urgent.cc - urgent data of streams (RFC 6093), as Linux has it: its last byte can be read beside the stream, from which it is left
// out unless SO_OOBINLINE leaves it in line. Of the few streams that have any, ReadPositions knows where it is.
#include <algorithm>
#include <cerrno>
#include <vector>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {
bool Stack::is_at_urgent(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  const bool waits = core_.has_awaited(number);  // what stands before it has come, and is to be told yet
  return socket != nullptr && socket->urgent && !waits && core_.positions.urgent(static_cast<uint32_t>(number)).before == 0;
}

uint32_t Stack::to_urgent(int number) const noexcept {
  const Socket* const socket = core_.owned(number);
  const bool stops = socket != nullptr && socket->urgent && !socket->urgent_inline;
  return stops ? core_.positions.urgent(static_cast<uint32_t>(number)).before : ~uint32_t{0};
}

// As Linux's tcp_recv_urg().
int64_t Stack::receive_urgent(int number, MutableBytes data, bool peek) {
  forget_reserved();
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type == Type::datagram) return -EOPNOTSUPP;
  if (socket->listening != nullptr) return -ENOTCONN;
  const auto index = static_cast<uint32_t>(number);
  if (!socket->urgent || socket->urgent_inline || core_.positions.urgent(index).taken) return -EINVAL;
  Urgent& urgent = core_.positions.urgent(index);
  if (socket->unread() <= urgent.before) {
    return (socket_events(*socket) & Events::kEnded) != 0 ? 0 : -EAGAIN;
  }
  if (!data.empty()) {
    std::vector<Bytes> pieces(socket->local_stream != nullptr ? socket->local_stream->pieces.size() :
                              socket->unread() / core_.options.chunk_bytes + 2 + tcp::ZeroCopyReceive::kPiecesMore);
    pieces.resize(static_cast<size_t>(std::max(gather(number, pieces), 0)));
    size_t skip = urgent.before;
    for (const Bytes& each : pieces) {
      if (copy_behind(each, skip, data.first(1)) != 0) break;
    }
  }
  if (!peek) urgent.taken = true;
  return data.empty() ? 0 : 1;
}

}  // namespace unet::sockets
