// packet_socket.cc - sendmsg and recvmsg with MSG_DONTWAIT.
#include "ni/service/packet_socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace unet::service {
namespace {
constexpr size_t kDescriptorsMax = 4;
}

PacketSocket::Received PacketSocket::receive(MutableBytes room, size_t& size, bool peek) noexcept {
  iovec part{room.data(), room.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;  // no room for control data: the kernel closes descriptors a client sends along
  ssize_t n = 0;
  do {
    n = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | (peek ? MSG_PEEK : 0));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Received::nothing : Received::closed;
  if (n == 0) return Received::closed;  // an empty packet looks the same, and is no packet of ours either
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Received::malformed;
  size = static_cast<size_t>(n);
  return Received::packet;
}

void PacketSocket::take() noexcept {
  while (recv(socket_.get(), nullptr, 0, MSG_DONTWAIT | MSG_TRUNC) < 0 && errno == EINTR) {
  }
}

PacketSocket::Sent PacketSocket::send_now(Bytes packet, std::span<const int> descriptors) noexcept {
  iovec part{const_cast<std::byte*>(packet.data()), packet.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty() && descriptors.size() <= kDescriptorsMax) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t n = 0;
  do {
    n = sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(packet.size())) {
    unread_descriptors_ += descriptors.size();
    return Sent::yes;
  }
  if (n < 0 && errno == ETOOMANYREFS) return Sent::no_descriptors;
  return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) ? Sent::full : Sent::broken;
}

PacketSocket::Outcome PacketSocket::send(Bytes packet, std::initializer_list<int> descriptors, size_t waiting_max) {
  if (!socket_.valid()) return Outcome::broken;
  if (waiting_.empty()) {
    switch (send_now(packet, {descriptors.begin(), descriptors.size()})) {
      case Sent::yes: return Outcome::sent;
      case Sent::no_descriptors: return Outcome::no_descriptors;
      case Sent::broken: return Outcome::broken;
      case Sent::full: break;
    }
  }
  return keep(packet, {descriptors.begin(), descriptors.size()}, waiting_max);
}

PacketSocket::Outcome PacketSocket::keep(Bytes packet, std::span<const int> descriptors, size_t waiting_max) {
  if (!socket_.valid() || waiting_.size() >= waiting_max) return Outcome::broken;
  std::vector<Descriptor> copies;
  for (const int descriptor : descriptors) {
    Descriptor copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!copy.valid()) return Outcome::no_descriptors;
    copies.push_back(std::move(copy));
  }
  return keep(packet, std::move(copies), waiting_max);
}

PacketSocket::Outcome PacketSocket::keep(Bytes packet, std::vector<Descriptor> descriptors, size_t waiting_max) {
  if (!socket_.valid() || waiting_.size() >= waiting_max) return Outcome::broken;
  waiting_.push_back({{packet.begin(), packet.end()}, std::move(descriptors)});
  return Outcome::sent;
}

PacketSocket::Outcome PacketSocket::flush(size_t leave) {
  while (waiting_.size() > leave) {
    const Packet& packet = waiting_.front();
    std::array<int, kDescriptorsMax> descriptors{};
    for (size_t i = 0; i < packet.descriptors.size(); ++i) descriptors[i] = packet.descriptors[i].get();
    const Sent sent = send_now(packet.bytes, {descriptors.data(), packet.descriptors.size()});
    if (sent == Sent::full) return Outcome::sent;
    if (sent == Sent::no_descriptors) return Outcome::no_descriptors;
    if (sent == Sent::broken) return Outcome::broken;
    waiting_.pop_front();
  }
  return Outcome::sent;
}

size_t PacketSocket::unread_descriptors() noexcept {
  int unread = 0;  // includes the kernel's own memory for the packets
  if (unread_descriptors_ != 0 && ioctl(socket_.get(), SIOCOUTQ, &unread) == 0 && unread == 0) unread_descriptors_ = 0;
  return unread_descriptors_;
}

void PacketSocket::end() noexcept {
  ::shutdown(socket_.get(), SHUT_RDWR);
  waiting_.clear();
}

void PacketSocket::close() noexcept {
  socket_.reset();
  waiting_.clear();
  unread_descriptors_ = 0;
}

}  // namespace unet::service
