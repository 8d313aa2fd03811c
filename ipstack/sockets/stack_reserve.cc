// stack_reserve.cc - sending without a copy: the application writes into the memory that a message or a segment leaves from.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ipstack/sockets/near_message.h"
#include "ipstack/sockets/stack.h"

namespace unet::sockets {

int Stack::reserve(int number, uint32_t bytes, MutableBytes& room) {
  forget_reserved();
  room = {};
  Socket* const socket = owned(number);
  if (socket == nullptr) return -EBADF;
  if (bytes == 0) return -EINVAL;
  const auto index = static_cast<uint32_t>(number);
  int result;
  if (socket->type == Type::datagram) {
    if (!socket->connected) return -EDESTADDRREQ;
    result = reserve_datagram(index, bytes, room);
  } else {
    if (socket->error != 0) return -take_error(*socket);
    result = socket->near != nullptr ? reserve_near(index, bytes, room) : reserve_stream(index, bytes, room);
    if (result == -EAGAIN) socket->told = static_cast<uint16_t>(socket->told & ~Events::kOut);  // told again when there is room
  }
  if (result != 0) return result;
  reserved_.socket = number;
  reserved_.bytes = static_cast<uint32_t>(room.size());
  return 0;
}

int Stack::reserve_stream(uint32_t index, uint32_t bytes, MutableBytes& room) {
  Socket& socket = slab_[index];
  if (!socket.has_connection() || socket.shut_write) return -EPIPE;
  tcp::Connection& connection = *socket.tcp.connection;
  if (connection.state() == tcp::State::closed) return -EPIPE;
  if (socket.deferred) {  // what is written in place does not go with a SYN
    socket.deferred = false;
    after(index);
    return -EAGAIN;
  }
  room = connection.reserve(bytes, reserved_.spare);
  if (!room.empty()) return 0;
  if (connection.writable() != 0) starve(index);  // no chunk was to be had
  return -EAGAIN;
}

int Stack::reserve_near(uint32_t index, uint32_t bytes, MutableBytes& room) {
  Socket& socket = slab_[index];
  NearPart& part = *socket.near;
  if (part.state == NearPart::State::asking) return -EAGAIN;
  if (part.state == NearPart::State::closed || part.end_due || part.end_sent) return -EPIPE;
  if (part.is_moving() || (part.is_behind() && !after_near(index)) || part.credit == 0) return -EAGAIN;
  bytes = std::min({bytes, part.credit, kMessageMax});
  reserved_.message = network_.reserve_to_neighbour(part.neighbour, bytes);
  if (reserved_.message.empty()) {
    ++counters_.no_room;
    socket.refused_bytes = bytes;
    make_due(index);
    return -EAGAIN;
  }
  reserved_.neighbour = part.neighbour;
  room = reserved_.message.first(bytes);
  return 0;
}

int Stack::reserve_datagram(uint32_t index, uint32_t bytes, MutableBytes& room) {
  const DatagramPart& part = *slab_[index].datagram;
  if (part.cork || part.gathered != nullptr) return -EINVAL;
  Departure& way = reserved_.way;
  way.to = slab_[index].remote;
  if (const int error = find_way(slab_[index], {}, way); error != 0) return error;
  way.segment = 0;
  const Address& to = way.to;
  if (bytes > datagram_max(to.host.is_ipv4())) return -EMSGSIZE;
  if (const int error = bind_free(index); error != 0) return -error;
  reserved_.neighbour = is_own(to.host) ? whereabouts(ip::Protocol::kUdp, to).neighbour : kNone;
  if (reserved_.neighbour != kNone) {
    if (!tell_marks(reserved_.neighbour, way.marks)) return refuse_datagram(index, reserved_.neighbour, bytes);
    reserved_.head = 0;
    reserved_.message = network_.reserve_to_neighbour(reserved_.neighbour, bytes);
  } else {
    reserved_.head = static_cast<uint32_t>(sizeof(IpMessageHeader)) + (to.host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes) + ip::kUdpBytes;
    reserved_.message = network_.reserve(reserved_.head + bytes);
  }
  if (reserved_.message.empty()) return refuse_datagram(index, reserved_.neighbour, bytes);
  room = reserved_.message.subspan(reserved_.head, bytes);
  return 0;
}

int64_t Stack::commit(int number, uint32_t bytes) {
  Socket* const socket = owned(number);
  if (socket == nullptr) return -EBADF;
  if (reserved_.socket != number || bytes > reserved_.bytes) return -EINVAL;
  const auto index = static_cast<uint32_t>(number);
  Reserved reserved = std::exchange(reserved_, {});
  if (socket->type == Type::datagram) {
    if (reserved.neighbour != kNone) {
      std::array<std::byte, kNearDatagramHeadMax> head;
      const uint32_t size = emit_near_datagram(head.data(), {reserved.way.from, socket->local.port}, reserved.way.to, 0);
      network_.post_to_neighbour(reserved.neighbour, Bytes(head).first(size), bytes);
    } else {
      if (const int error = fit_path(index, reserved.way, bytes); error != 0) return error;
      begin_datagram(reserved.message, *socket, reserved.way, bytes);
      network_.post(reserved.head + bytes);
      ++counters_.messages_out;
    }
    return bytes;
  }
  if (socket->near != nullptr) {
    if (bytes == 0) return 0;
    NearPart& part = *socket->near;
    const NearHeader header{.kind = NearKind::kData, .socket = part.peer, .life = part.peer_life};
    network_.post_to_neighbour(part.neighbour, {reinterpret_cast<const std::byte*>(&header), sizeof header}, bytes);
    part.credit -= bytes;
    part.sent.count(bytes, now_);
    return bytes;
  }
  socket->told = static_cast<uint16_t>(socket->told & ~Events::kOut);
  socket->tcp.connection->commit(bytes, reserved.spare);
  if (bytes != 0) after(index);
  return bytes;
}

void Stack::drop_reserved() noexcept {
  if (reserved_.spare != tcp::kNoChunk) chunks_.give_back(reserved_.spare);
  reserved_ = {};
}

}  // namespace unet::sockets
