// room.cc - limits of the machine, of control groups and of the process, against what ranks may take.
#include "am/splitc/room.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string_view>

namespace unet::splitc {
namespace {

constexpr uint32_t kMegabyteShift = 20;
constexpr uint64_t kMemoryMin = uint64_t{1} << kMegabyteShift;   // smallest value that UNET_SPLITC_MEMORY may have

uint64_t add(uint64_t one, uint64_t other) noexcept { return one > Room::kAnyRoom - other ? Room::kAnyRoom : one + other; }

// Returns the number in a file; kAnyRoom if there is none, or another word ("max").
uint64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  uint64_t number = 0;
  if (!(file >> word)) return Room::kAnyRoom;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() ? number : Room::kAnyRoom;
}

// Returns the least limit of a control group and the groups around it. In a container the path may be the host's, of which only the root
// exists.
uint64_t group_limit(const std::string& base, std::string path, const char* file) {
  uint64_t least = Room::kAnyRoom;
  for (;;) {
    least = std::min(least, number_in(base + path + "/" + file));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

// Lines look like "4:memory:/a/b" (version 1) and "0::/a/b" (version 2).
uint64_t groups_limit(const std::string& root) {
  std::ifstream list(root + "/proc/self/cgroup");
  uint64_t least = Room::kAnyRoom;
  for (std::string line; std::getline(list, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view which = std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (which == "memory") least = std::min(least, group_limit(root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"));
    if (which.empty()) least = std::min(least, group_limit(root + "/sys/fs/cgroup", path, "memory.max"));
  }
  return least;
}

// unet-run starts all ranks as its children, on a network interface in a directory of its own.
bool started_by_unet_run() {
  const char* const ni = ::secure_getenv("UNET_NI");
  return ni != nullptr && std::string_view(ni).find("/unet-run-") != std::string_view::npos;
}

std::string megabytes(uint64_t bytes) { return std::to_string(bytes >> kMegabyteShift) + "M"; }

uint32_t ranks_of_this_host(const Job& job) {
  if (job.hosts.empty()) return job.size;
  return static_cast<uint32_t>(std::count(job.hosts.begin(), job.hosts.end(), job.hosts[job.rank]));
}

// Checks that the spread memory of `ranks` fits into `room`.
Status fits(const Job& job, uint32_t ranks, uint64_t room, const std::string& whose, const std::string& help) {
  if (room / job.memory >= ranks) return {};
  const std::string who = ranks == 1 ? "a rank" : std::to_string(ranks) + " ranks of this host";
  const std::string each = megabytes(job.memory) + (ranks == 1 ? " of spread memory takes " : " of spread memory each take ");
  const uint64_t most = room / ranks;
  return fail(Errc::out_of_memory,
              who + " with " + each + megabytes(ranks * job.memory) + ", but " + whose + " " + megabytes(room) + help + ": " +
                  (most < kMemoryMin ? "start fewer ranks" : "UNET_SPLITC_MEMORY=" + megabytes(most) + " is the most for so many"));
}

}  // namespace

Room Room::here(const std::string& root) {
  Room room;
  uint64_t swap = 0;
  if (struct sysinfo info{}; sysinfo(&info) == 0) {
    swap = info.totalswap * info.mem_unit;
    room.machine = info.totalram * info.mem_unit + swap;
  }
  room.control_group = add(groups_limit(root), swap);
  if (rlimit limit{}; getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) room.addresses = limit.rlim_cur;
  room.one_group = started_by_unet_run();
  return room;
}

Status check_room(const Job& job, bool asked, const Room& room) {
  const uint32_t ranks = ranks_of_this_host(job);
  const uint32_t mapped = job.path == Path::direct ? ranks : 1;
  if (const Status fit = fits(job, mapped, room.addresses, "this process may map", " (ulimit -v)"); !fit) return fit;
  if (!asked) return {};
  if (const Status fit = fits(job, ranks, room.machine, "this host has", " of memory and swap"); !fit) return fit;
  return fits(job, room.one_group ? ranks : 1, room.control_group, "their control group may have", " of memory and swap");
}

}  // namespace unet::splitc
