// cpu_time.cc - /proc/PID/task/TID/schedstat: nanoseconds on a processor, where the kernel has it; else clock ticks of stat.
#include "apps/bench/cpu_time.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace unet::bench {

namespace {

Nanoseconds of_thread(const std::string& directory) {
  uint64_t on_processor = 0;
  std::ifstream schedstat(directory + "/schedstat");
  if (schedstat >> on_processor) return on_processor;
  // utime and stime are the 12th and 13th fields after the command, which may hold spaces and ends with ')'.
  std::string line;
  std::ifstream stat(directory + "/stat");
  std::getline(stat, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return 0;
  unsigned long user = 0, system = 0;
  if (std::sscanf(line.c_str() + end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2) return 0;
  return (user + system) * (kSecond / static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
}

}  // namespace

Result<Nanoseconds> cpu_time_of(const std::vector<int>& processes) {
  Nanoseconds sum = 0;
  for (int process : processes) {
    const std::string tasks = "/proc/" + std::to_string(process) + "/task";
    DIR* directory = opendir(tasks.c_str());
    if (directory == nullptr) return fail(Errc::not_found, "process " + std::to_string(process) + " is gone");
    while (const dirent* entry = readdir(directory)) {
      if (entry->d_name[0] != '.') sum += of_thread(tasks + "/" + entry->d_name);
    }
    closedir(directory);
  }
  return sum;
}

}  // namespace unet::bench
