// packets.cc - the type and the numbers of a record, then its payload.
#include "apps/unet-agent/packets.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

namespace unet::agent {

Sent send_packet(int socket, const rpc::TaskRecord& record) noexcept {
  Packet::Head head{static_cast<uint32_t>(record.type), record.a, record.b};
  iovec parts[] = {{&head, sizeof head}, {const_cast<std::byte*>(record.payload.data()), record.payload.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return Sent::yes;
  return errno == EAGAIN ? Sent::full : Sent::closed;
}

Packet::Got Packet::receive(int socket) noexcept {
  ssize_t size = 0;
  do {
    size = recv(socket, bytes_.data(), bytes_.size(), MSG_DONTWAIT);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return Got::none;
  if (size < static_cast<ssize_t>(sizeof(Head))) return Got::closed;
  const auto head = read_as<Head>(bytes_.data());
  record_ = {static_cast<rpc::RecordType>(head.type), head.a, head.b,
             Bytes(bytes_).subspan(sizeof head, static_cast<size_t>(size) - sizeof head)};
  return Got::record;
}

}  // namespace unet::agent
