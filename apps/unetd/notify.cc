// notify.cc - sends one datagram, to a path or to an abstract name.
#include "apps/unetd/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace unet::unetd {

void announce_ready(const std::string& socket, int ready_fd) {
  std::printf("unetd ready at %s\n", socket.c_str());
  std::fflush(stdout);
  notify_manager("READY=1");
  if (ready_fd < 0) return;
  const char byte = '\n';
  static_cast<void>(!write(ready_fd, &byte, 1));
  close(ready_fd);
}

void notify_manager(std::string_view state) noexcept {
  const char* const name = std::getenv("NOTIFY_SOCKET");
  if (name == nullptr || (name[0] != '/' && name[0] != '@')) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(name);
  if (length >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, name, length);
  if (name[0] == '@') address.sun_path[0] = '\0';
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return;
  static_cast<void>(!sendto(socket, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
                            static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length)));
  close(socket);
}

}  // namespace unet::unetd
