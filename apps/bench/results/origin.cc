// origin.cc - the origin of records: /proc/cpuinfo, uname() and the build.
#include "apps/bench/results/origin.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "apps/bench/commit.h"

namespace unet::bench {

namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace

Origin origin_of_now() {
  utsname system{};
  uname(&system);
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
  return {processor() + " (" + std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + " cores), " + system.sysname + " " + system.release, date,
          UNET_BENCH_COMMIT};
}

}  // namespace unet::bench
