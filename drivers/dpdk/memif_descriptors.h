// memif_descriptors.h - lists the descriptors of this process; used by memif_greeting and memif_regions, in EAL's interrupt thread.
#pragma once

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace unet::drivers {

struct SocketName {
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  explicit SocketName(int fd) {
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) size = 0;
  }
  bool operator==(const SocketName& other) const {
    return size != 0 && size == other.size && std::memcmp(&address, &other.address, size) == 0;
  }
};

// A socket that a server has accepted carries the server's name.
inline bool is_accepted_by(int fd, int listener) { return fd != listener && SocketName(fd) == SocketName(listener); }

// Calls `each` with every descriptor and its link text in /proc/self/fd. Returns false if /proc cannot be read.
template <typename Each>
bool for_descriptors(Each each) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), &closedir);
  if (directory == nullptr) return false;
  while (const dirent* entry = readdir(directory.get())) {
    std::array<char, 64> name;
    const ssize_t length = readlinkat(dirfd(directory.get()), entry->d_name, name.data(), name.size());
    if (length > 0) each(std::atoi(entry->d_name), std::string_view(name.data(), static_cast<size_t>(length)));
  }
  return true;
}

}  // namespace unet::drivers
