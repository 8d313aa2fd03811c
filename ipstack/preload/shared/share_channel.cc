// share_channel.cc - packets between processes that share sockets.
#include "ipstack/preload/shared/share_channel.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "ipstack/preload/own_descriptors.h"
#include "ipstack/preload/real.h"

namespace unet::preload {
namespace {

// A message of one piece, and room for one descriptor: the kernel closes further ones.
struct Packet {
  iovec data;
  alignas(cmsghdr) char control[CMSG_LEN(sizeof(int))]{};
  msghdr message{};

  Packet(void* memory, size_t size) : data{memory, size} {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
  }
  void give_control() noexcept {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
};

}  // namespace

std::span<std::byte> message_memory() noexcept {
  alignas(ChildMessage) static std::byte memory[kShareMessageMax];
  return memory;
}

bool make_channel(int (&ends)[2]) noexcept {
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
  for (int& each : ends) each = out_of_the_way(each);
  return true;
}

bool send_on(int channel, const void* data, size_t size, int descriptor, bool may_wait) noexcept {
  Packet packet(const_cast<void*>(data), size);
  if (descriptor >= 0) {
    packet.give_control();
    cmsghdr* const rights = CMSG_FIRSTHDR(&packet.message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  return real().sendmsg(channel, &packet.message, MSG_NOSIGNAL | (may_wait ? 0 : MSG_DONTWAIT)) == static_cast<ssize_t>(size);
}

ssize_t receive_on(int channel, void* data, size_t size, int& descriptor) noexcept {
  Packet packet(data, size);
  packet.give_control();
  descriptor = -1;
  ssize_t got;
  // A peer that ended with unread packets causes ECONNRESET once. Its own packets follow.
  do got = Kernel::recvmsg(channel, &packet.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got == -ECONNRESET);
  if (got < 0) return got;
  const cmsghdr* const rights = CMSG_FIRSTHDR(&packet.message);
  if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
    std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
    descriptor = out_of_the_way(descriptor);
  }
  return got;
}

bool is_socket(int fd, int domain, int type) noexcept {
  int has_domain = 0, has_type = 0;
  socklen_t length = sizeof(int);
  return real().getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &has_domain, &length) == 0 && has_domain == domain &&
         real().getsockopt(fd, SOL_SOCKET, SO_TYPE, &has_type, &length) == 0 && has_type == type;
}

}  // namespace unet::preload
