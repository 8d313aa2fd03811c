// describe_file.cc - functions of description.h that ask this process's stack or the kernel. The tests link description.cc alone.
#include "ipstack/preload/description.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"

namespace unet::preload {

// As in Linux, a stream that was never connected has EPOLLHUP without EPOLLRDHUP.
bool is_connection(const File& file) noexcept {
  if (!file.in_stack() || !file.is_stream() || file.listens) return false;
  return (Runtime::get().stack().events(file.socket) & (EPOLLHUP | EPOLLRDHUP)) != EPOLLHUP;
}

bool stays_open(int fd) noexcept {
  const int flags = real().fcntl(fd, F_GETFD);
  return flags >= 0 && (flags & FD_CLOEXEC) == 0;
}

File::Pair names_of(const File& file) {
  File::Pair names;
  sockets::Stack& stack = Runtime::get().stack();
  static_cast<void>(stack.local_address(file.socket, names.local));
  static_cast<void>(stack.remote_address(file.socket, names.remote));
  return names;
}

std::string describe(const File& file) {
  if (file.inherited) return describe(file, *file.inherited);
  const File::Pair names = names_of(file);
  return describe(file, {.local = names.local, .remote = names.remote, .group = Runtime::get().stack().group_of(file.socket)});
}

}  // namespace unet::preload
