// memif_regions.cc - finds the descriptors that hold a dead memif client's memory.
#include "drivers/dpdk/memif_regions.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "drivers/dpdk/eal.h"
#include "drivers/dpdk/memif_descriptors.h"

namespace unet::drivers {

namespace {

// Names of a client's memory: DPDK's with copies, and without copies on ordinary pages and on hugepages. VPP's names begin like the first.
bool is_of_a_client(std::string_view name) {
  constexpr std::string_view kMemory = "/memfd:";
  if (!name.starts_with(kMemory)) return false;
  name.remove_prefix(kMemory.size());
  return name.starts_with("memif") || name.starts_with("nohuge") || (name.starts_with("seg_") && !eal::uses_hugepages());
}

struct Orphan {
  int descriptor;
  struct stat file;
  bool mapped = false;
};

// Another thread may have closed the descriptor meanwhile, and another file may have its number.
bool is_still(const Orphan& orphan) noexcept {
  struct stat now{};
  return fstat(orphan.descriptor, &now) == 0 && now.st_ino == orphan.file.st_ino && now.st_dev == orphan.file.st_dev;
}

// Marks the files that this process has mapped. Returns false if /proc cannot be read.
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

void OrphanedRegions::spare_present() {
  for_descriptors([&](int descriptor, std::string_view name) {
    struct stat file{};
    if (is_of_a_client(name) && fstat(descriptor, &file) == 0) spared_.push_back({file.st_dev, file.st_ino});
  });
}

// A live client sees the end of the connection as if its peer had gone, and DPDK closes the connection.
void OrphanedRegions::hang_up_on_silent(std::vector<Connection> unconnected, Nanoseconds now) noexcept {
  for (Connection& each : unconnected) {
    const auto before = std::find_if(unconnected_.begin(), unconnected_.end(), [&](const Connection& c) { return c.inode == each.inode; });
    if (before != unconnected_.end()) each.since = before->since;
    if (now - each.since >= kSilence) shutdown(each.descriptor, SHUT_RDWR);
  }
  unconnected_ = std::move(unconnected);
}

bool OrphanedRegions::close(std::span<const MemifServers> servers, Nanoseconds now) {
  std::vector<Orphan> found;
  std::vector<size_t> accepted(servers.size());
  std::vector<Connection> unconnected;
  const bool seen = for_descriptors([&](int descriptor, std::string_view name) {
    struct stat file{};
    if (name.starts_with("socket:")) {
      for (size_t i = 0; i < servers.size(); ++i) {
        if (servers[i].listener < 0 || !is_accepted_by(descriptor, servers[i].listener)) continue;
        ++accepted[i];
        if (servers[i].connected == 0 && fstat(descriptor, &file) == 0) unconnected.push_back({descriptor, file.st_ino, now});
      }
    } else if (is_of_a_client(name) && fstat(descriptor, &file) == 0) {
      const bool spared = std::find(spared_.begin(), spared_.end(), File{file.st_dev, file.st_ino}) != spared_.end();
      if (!spared) found.push_back({.descriptor = descriptor, .file = file});
    }
  });
  if (!seen) return true;  // /proc cannot be read, now or later
  hang_up_on_silent(std::move(unconnected), now);
  for (size_t i = 0; i < servers.size(); ++i) {
    // A connected port serves no other client.
    if (accepted[i] > servers[i].connected && servers[i].connected < servers[i].ports) return false;
  }
  if (found.empty() || !find_mapped(found)) return true;
  for (const Orphan& each : found) {
    if (!each.mapped && is_still(each)) ::close(each.descriptor);
  }
  return true;
}

}  // namespace unet::drivers
