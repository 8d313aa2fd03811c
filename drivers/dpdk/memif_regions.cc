// memif_regions.cc - which descriptors of this process are a dead memif client's memory.
#include "drivers/dpdk/memif_regions.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "drivers/dpdk/eal.h"

namespace unet::drivers {

namespace {

struct Name {
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  explicit Name(int fd) {
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) size = 0;
  }
  bool operator==(const Name& other) const { return size != 0 && size == other.size && std::memcmp(&address, &other.address, size) == 0; }
};

// What a server has accepted has the server's name.
bool is_accepted_by(int fd, int listener) { return fd != listener && Name(fd) == Name(listener); }

// DPDK's names for a client's memory: with copies, and without them from ordinary pages and from hugepages. VPP's begin as the first.
bool is_of_a_client(std::string_view name) {
  constexpr std::string_view kMemory = "/memfd:";
  if (!name.starts_with(kMemory)) return false;
  name.remove_prefix(kMemory.size());
  return name.starts_with("memif") || name.starts_with("nohuge") || (name.starts_with("seg_") && !eal::uses_hugepages());
}

// Calls `each` with every descriptor and what it is. False: there is no telling.
template <typename Each>
bool for_descriptors(Each each) noexcept {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), &closedir);
  if (directory == nullptr) return false;
  while (const dirent* entry = readdir(directory.get())) {
    std::array<char, 64> name;
    const ssize_t length = readlinkat(dirfd(directory.get()), entry->d_name, name.data(), name.size());
    if (length > 0) each(std::atoi(entry->d_name), std::string_view(name.data(), static_cast<size_t>(length)));
  }
  return true;
}

struct Orphan {
  int descriptor;
  struct stat file;
  bool mapped = false;
};

// False: there is no telling.
bool find_mapped(std::span<Orphan> all) noexcept {
  const std::unique_ptr<FILE, int (*)(FILE*)> maps(fopen("/proc/self/maps", "re"), &fclose);
  if (maps == nullptr) return false;
  char* line = nullptr;
  size_t size = 0;
  while (getline(&line, &size, maps.get()) > 0) {
    unsigned major_number = 0, minor_number = 0;
    unsigned long inode = 0;
    if (std::sscanf(line, "%*s %*s %*s %x:%x %lu", &major_number, &minor_number, &inode) != 3) continue;
    for (Orphan& each : all) {
      const bool same = each.file.st_ino == inode && each.file.st_dev == makedev(major_number, minor_number);
      each.mapped = each.mapped || same;
    }
  }
  std::free(line);
  return true;
}

}  // namespace

bool close_orphaned_regions(std::span<const MemifServer> servers) noexcept {
  constexpr size_t kAtOnce = 256;  // one client leaves a few, and one that lives has as many
  std::array<Orphan, kAtOnce> found;
  size_t count = 0, connections = 0, connected = 0;
  for (const MemifServer& server : servers) connected += server.connected ? 1 : 0;
  const bool seen = for_descriptors([&](int descriptor, std::string_view name) {
    if (name.starts_with("socket:")) {
      for (const MemifServer& server : servers) connections += server.listener >= 0 && is_accepted_by(descriptor, server.listener) ? 1 : 0;
    } else if (is_of_a_client(name) && count < kAtOnce) {
      found[count].descriptor = descriptor;
      if (fstat(descriptor, &found[count].file) == 0) ++count;
    }
  });
  if (!seen) return true;  // and never will be
  if (connections != connected) return false;
  const std::span<Orphan> all = std::span(found).first(count);
  if (count == 0 || !find_mapped(all)) return true;
  for (const Orphan& each : all) {
    if (!each.mapped) close(each.descriptor);
  }
  return true;
}

}  // namespace unet::drivers
