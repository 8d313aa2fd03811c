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
    result = reserve_datagram(index, bytes, room);
  } else {
    if (socket->error != 0) return -socket->take_error();
    result = socket->local_stream != nullptr ? reserve_local(index, bytes, room) : reserve_stream(index, bytes, room);
    if (result == -EAGAIN) socket->told = static_cast<uint16_t>(socket->told & ~Events::kOut);  // told again when there is room
  }
  if (result != 0) return result;
  reserved_.socket = number;
  reserved_.bytes = static_cast<uint32_t>(room.size());
  return 0;
}

int Stack::reserve_stream(uint32_t index, uint32_t bytes, MutableBytes& room) {
  Socket& socket = core_.sockets[index];
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
  if (connection.writable() != 0) core_.starved.push(index);  // no chunk was to be had
  return -EAGAIN;
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

int Stack::reserve_datagram(uint32_t index, uint32_t bytes, MutableBytes& room) {
  const DatagramPart& part = *core_.sockets[index].datagram;
  if (part.cork || part.gathered != nullptr) return -EINVAL;
  SendRoute& route = reserved_.route;
  route.to = core_.sockets[index].remote;
  if (const int error = find_route(core_.sockets[index], {}, route); error != 0) return error;
  route.segment = 0;
  const Address& to = route.to;
  if (bytes > datagram_max(to.host.is_ipv4())) return -EMSGSIZE;
  if (const int error = names_.bind_free(index); error != 0) return -error;
  reserved_.local_peer = core_.addresses.is_own(to.host) ? directory_.look_up(ip::Protocol::kUdp, to, core_.now).local_peer : kNone;
  if (reserved_.local_peer != kNone) {
    if (!local_peers_.send_header_options(reserved_.local_peer, route.header_options)) {
      return refuse_datagram(index, reserved_.local_peer, bytes);
    }
    reserved_.head = 0;
    reserved_.message = core_.network.reserve_to_local_peer(reserved_.local_peer, bytes);
  } else {
    reserved_.head = static_cast<uint32_t>(sizeof(IpMessageHeader)) + (to.host.is_ipv4() ? ip::kIpv4Bytes : ip::kIpv6Bytes) + ip::kUdpBytes;
    reserved_.message = core_.network.reserve(reserved_.head + bytes);
  }
  if (reserved_.message.empty()) return refuse_datagram(index, reserved_.local_peer, bytes);
  room = reserved_.message.subspan(reserved_.head, bytes);
  return 0;
}

int64_t Stack::commit(int number, uint32_t bytes) {
  Socket* const socket = core_.owned(number);
  if (socket == nullptr) return -EBADF;
  if (reserved_.socket != number || bytes > reserved_.bytes) return -EINVAL;
  const auto index = static_cast<uint32_t>(number);
  Reserved reserved = std::exchange(reserved_, {});
  if (socket->type == Type::datagram) {
    if (reserved.local_peer != kNone) {
      std::array<std::byte, kPeerDatagramHeadMax> head;
      const uint32_t size = emit_local_datagram(head.data(), {reserved.route.from, socket->local.port}, reserved.route.to, 0);
      core_.network.post_to_local_peer(reserved.local_peer, Bytes(head).first(size), bytes);
    } else {
      if (const int error = fit_path(index, reserved.route, bytes); error != 0) return error;
      begin_datagram(reserved.message, *socket, reserved.route, bytes);
      core_.network.post(reserved.head + bytes);
      ++core_.counters.messages_out;
    }
    return bytes;
  }
  if (socket->local_stream != nullptr) {
    if (bytes == 0) return 0;
    LocalStream& part = *socket->local_stream;
    core_.network.post_to_local_peer(part.local_peer, bytes_of(header_to(part, PeerKind::kData)), bytes);
    part.credit -= bytes;
    part.sent.count(bytes, core_.now);
    return bytes;
  }
  socket->told = static_cast<uint16_t>(socket->told & ~Events::kOut);
  socket->tcp.connection->commit(bytes, reserved.spare);
  if (bytes != 0) after(index);
  return bytes;
}

void Stack::drop_reserved() noexcept {
  if (reserved_.spare != tcp::kNoChunk) memory_.chunks.give_back(reserved_.spare);
  reserved_ = {};
}

}  // namespace unet::sockets
