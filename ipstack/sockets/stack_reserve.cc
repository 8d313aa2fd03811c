// stack_reserve.cc - sending without a copy: the application writes into the memory that a message or a segment leaves from.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ipstack/sockets/local_peer_message.h"
#include "ipstack/sockets/stack.h"

namespace unet::sockets {

int Stack::reserve(int number, uint32_t bytes, MutableBytes& room) {
  forget_reserved();
  room = {};
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (bytes == 0) return -EINVAL;
  const auto index = static_cast<uint32_t>(number);
  int result;
  if (socket->type == Type::datagram) {
    if (!socket->connected) return -EDESTADDRREQ;
    result = datagrams_.reserve(index, bytes, reserved_, room);
  } else {
    if (socket->error != 0) return -socket->take_error();
    result = socket->local_stream != nullptr ? reserve_local(index, bytes, room) : tcp_.reserve(index, bytes, reserved_, room);
    if (result == -EAGAIN) socket->told = static_cast<uint16_t>(socket->told & ~Events::kOut);  // told again when there is room
  }
  if (result != 0) return result;
  reserved_.socket = number;
  reserved_.bytes = static_cast<uint32_t>(room.size());
  return 0;
}

int Stack::reserve_local(uint32_t index, uint32_t bytes, MutableBytes& room) {
  Socket& socket = core_.sockets[index];
  LocalStream& part = *socket.local_stream;
  if (part.state == LocalStream::State::asking) return -EAGAIN;
  if (part.state == LocalStream::State::closed || part.end != LocalStream::End::none) return -EPIPE;
  if (part.is_moving() || (part.is_behind() && !flush_local(index)) || part.credit == 0) return -EAGAIN;
  bytes = std::min({bytes, part.credit, kMessageMax});
  reserved_.message = core_.network.reserve_to_local_peer(part.local_peer, bytes);
  if (reserved_.message.empty()) {
    ++core_.counters.no_room;
    socket.refused_bytes = bytes;
    core_.make_due(index);
    return -EAGAIN;
  }
  reserved_.local_peer = part.local_peer;
  room = reserved_.message.first(bytes);
  return 0;
}

int64_t Stack::commit(int number, uint32_t bytes) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (reserved_.socket != number || bytes > reserved_.bytes) return -EINVAL;
  const auto index = static_cast<uint32_t>(number);
  Reservation reserved = std::exchange(reserved_, {});
  if (socket->type == Type::datagram) return datagrams_.commit(index, bytes, reserved);
  if (socket->local_stream != nullptr) {
    if (bytes == 0) return 0;
    LocalStream& part = *socket->local_stream;
    core_.network.post_to_local_peer(part.local_peer, bytes_of(header_to(part, PeerKind::kData)), bytes);
    part.credit -= bytes;
    part.sent.count(bytes, core_.now);
    return bytes;
  }
  tcp_.commit(index, bytes, reserved);
  return bytes;
}

void Stack::drop_reserved() noexcept {
  if (reserved_.spare != tcp::kNoChunk) memory_.chunks.give_back(reserved_.spare);
  reserved_ = {};
}

}  // namespace unet::sockets
