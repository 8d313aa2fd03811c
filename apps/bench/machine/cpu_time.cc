// cpu_time.cc - /proc/PID/task/TID/schedstat: nanoseconds on a processor, where the kernel has it; else, and of children that have ended,
// clock ticks of stat.
#include "apps/bench/machine/cpu_time.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "apps/bench/machine/run_delay.h"

namespace unet::bench {

namespace {

struct Times {
  Nanoseconds own = 0, children = 0;
};

Times of_stat(const std::string& directory) {
  // utime, stime, cutime and cstime are the 12th to 15th fields after the command, which may hold spaces and ends with ')'.
  std::string line;
  std::ifstream stat(directory + "/stat");
  std::getline(stat, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return {};
  unsigned long user = 0, system = 0, children_user = 0, children_system = 0;
  const int found = std::sscanf(line.c_str() + end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu", &user, &system,
                                &children_user, &children_system);
  const uint64_t tick = kSecond / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return found == 4 ? Times{(user + system) * tick, (children_user + children_system) * tick} : Times{};
}

Nanoseconds of_thread(const std::string& directory) {
  uint64_t on_processor = 0;
  std::ifstream schedstat(directory + "/schedstat");
  if (schedstat >> on_processor) return on_processor;
  return of_stat(directory).own;
}

// Calls `look` with the directory of each thread. False: the process is gone.
template <typename Look>
bool for_each_thread(int process, Look look) {
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  DIR* directory = opendir(tasks.c_str());
  if (directory == nullptr) return false;
  while (const dirent* entry = readdir(directory)) {
    if (entry->d_name[0] != '.') look(tasks + "/" + entry->d_name);
  }
  closedir(directory);
  return true;
}

}  // namespace

Result<Nanoseconds> cpu_time_of(const std::vector<int>& processes) {
  Nanoseconds sum = 0;
  for (int process : processes) {
    const bool there = for_each_thread(process, [&](const std::string& thread) { sum += of_thread(thread); });
    sum += of_stat("/proc/" + std::to_string(process)).children;
    if (!there) return fail(Errc::not_found, "process " + std::to_string(process) + " is gone");
  }
  return sum;
}

Nanoseconds run_delay_of(const std::vector<int>& processes) {
  Nanoseconds sum = 0;
  for (int process : processes) {
    for_each_thread(process, [&](const std::string& thread) {
      std::string line;
      std::ifstream schedstat(thread + "/schedstat");
      std::getline(schedstat, line);
      sum += parse_run_delay(line.c_str());
    });
  }
  return sum;
}

}  // namespace unet::bench
