// stack_urgent.cc - urgent data of streams (RFC 6093), as Linux has it: its last byte can be read beside the stream, from which it is left
// out unless SO_OOBINLINE leaves it in line. Of the few streams that have any, ReadPositions knows where it is.
#include <algorithm>
#include <cerrno>
#include <vector>

#include "ipstack/sockets/stack.h"

namespace unet::sockets {
namespace {

constexpr uint32_t kEnded = Events::kPeerShut | Events::kHangUp;

}  // namespace

// The peer tells of an urgent byte, `before` bytes behind what was read last. The older one is then a byte like any other, but where it
// was the next to be read, and had come: there were `there` bytes before this.
void Stack::set_urgent(uint32_t index, uint32_t before, uint32_t there) {
  Socket& socket = slab_[index];
  if (socket.urgent && before <= positions_.urgent(index).before) return;
  if (positions_.is_passed_over(index) && there != 0) {
    leave_out_urgent(index);
    --before;
  }
  positions_.set_urgent(index, before);
  if (!socket.is_owned()) return;
  socket.urgent_news = true;
  socket.told = static_cast<uint16_t>(socket.told & ~Events::kUrgent);  // a further one is told of anew
  list(index);
}

void Stack::leave_out_urgent(uint32_t index) {
  positions_.forget_urgent(index);
  consume_at(index, 1);
}

// Limits the room of a read, or of a peek behind `skip` bytes, to the data before the urgent byte. That byte, if next, is left out now.
MutableBytes Stack::room_to_urgent(uint32_t index, MutableBytes room, bool peek, size_t& skip) {
  const size_t before = positions_.urgent(index).before;
  if (before > skip) return room.first(std::min(room.size(), before - skip));
  if (before < skip || room.empty() || slab_[index].urgent_inline || slab_[index].unread() <= skip) return room;
  if (peek) ++skip;
  else leave_out_urgent(index);
  return room;
}

bool Stack::is_at_urgent(int number) const noexcept {
  const Socket* const socket = owned(number);
  const bool waits = awaited_.socket == number && awaited_.came >= 0;  // what stands before it has come, and is to be told yet
  return socket != nullptr && socket->urgent && !waits && positions_.urgent(static_cast<uint32_t>(number)).before == 0;
}

uint32_t Stack::to_urgent(int number) const noexcept {
  const Socket* const socket = owned(number);
  const bool stops = socket != nullptr && socket->urgent && !socket->urgent_inline;
  return stops ? positions_.urgent(static_cast<uint32_t>(number)).before : ~uint32_t{0};
}

// As Linux's tcp_recv_urg().
int64_t Stack::receive_urgent(int number, MutableBytes data, bool peek) {
  forget_reserved();
  Socket* const socket = owned(number);
  if (socket == nullptr) return -EBADF;
  if (socket->type == Type::datagram) return -EOPNOTSUPP;
  if (socket->listening != nullptr) return -ENOTCONN;
  const auto index = static_cast<uint32_t>(number);
  if (!socket->urgent || socket->urgent_inline || positions_.urgent(index).taken) return -EINVAL;
  Urgent& urgent = positions_.urgent(index);
  if (socket->unread() <= urgent.before) {
    return (socket_events(*socket) & kEnded) != 0 ? 0 : -EAGAIN;
  }
  if (!data.empty()) {
    std::vector<Bytes> pieces(socket->local_stream != nullptr ? socket->local_stream->pieces.size() :
                              socket->unread() / options_.chunk_bytes + 2 + tcp::ZeroCopyReceive::kPiecesMore);
    pieces.resize(static_cast<size_t>(std::max(gather(number, pieces), 0)));
    size_t skip = urgent.before;
    for (const Bytes& each : pieces) {
      if (copy_behind(each, skip, data.first(1)) != 0) break;
    }
  }
  if (!peek) urgent.taken = true;
  return data.empty() ? 0 : 1;
}

// The urgent byte alone is nothing to read.
uint32_t Stack::events_of(uint32_t index) const noexcept {
  const Socket& socket = slab_[index];
  uint32_t events = socket_events(socket);
  if (!socket.urgent) [[likely]] return events;
  const Urgent& urgent = positions_.urgent(index);
  const uint32_t there = socket.unread();
  if (there > urgent.before && !urgent.taken) events |= Events::kUrgent;
  return positions_.is_passed_over(index) && there == 1 && (events & kEnded) == 0 ? events & ~Events::kIn : events;
}

}  // namespace unet::sockets
