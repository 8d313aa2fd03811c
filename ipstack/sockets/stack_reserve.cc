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
    result = socket->local_stream != nullptr ? local_streams_.reserve(index, bytes, reserved_, room)
                                             : tcp_.reserve(index, bytes, reserved_, room);
    if (result == -EAGAIN) socket->told = static_cast<uint16_t>(socket->told & ~Events::kOut);  // told again when there is room
  }
  if (result != 0) return result;
  reserved_.socket = number;
  reserved_.bytes = static_cast<uint32_t>(room.size());
  return 0;
}

int64_t Stack::commit(int number, uint32_t bytes) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (reserved_.socket != number || bytes > reserved_.bytes) return -EINVAL;
  const auto index = static_cast<uint32_t>(number);
  Reservation reserved = std::exchange(reserved_, {});
  if (socket->type == Type::datagram) return datagrams_.commit(index, bytes, reserved);
  if (socket->local_stream != nullptr) local_streams_.commit(index, bytes);
  else tcp_.commit(index, bytes, reserved);
  return bytes;
}

void Stack::drop_reserved() noexcept {
  if (reserved_.spare != tcp::kNoChunk) memory_.chunks.give_back(reserved_.spare);
  reserved_ = {};
}

}  // namespace unet::sockets
