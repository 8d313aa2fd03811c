// run_delay.cc - /proc/self/schedstat.
#include "apps/bench/machine/run_delay.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace unet::bench {

RunDelay::RunDelay() : fd_(open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC)) {}

RunDelay::~RunDelay() {
  if (fd_ >= 0) close(fd_);
}

Nanoseconds RunDelay::read() const {
  char line[96];
  const ssize_t n = fd_ < 0 ? -1 : pread(fd_, line, sizeof(line) - 1, 0);
  if (n <= 0) return 0;
  line[n] = '\0';
  return parse_run_delay(line);
}

Nanoseconds parse_run_delay(const char* line) {
  char* rest = nullptr;
  (void)std::strtoull(line, &rest, 10);
  return rest == line ? 0 : std::strtoull(rest, nullptr, 10);
}

}  // namespace unet::bench
