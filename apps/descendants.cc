// descendants.cc - reads the children of this process from /proc.
#include "apps/descendants.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>

namespace unet::apps {

void adopt_descendants() noexcept { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::set<pid_t> children() {
  const std::string self = std::to_string(getpid());
  std::ifstream list("/proc/" + self + "/task/" + self + "/children");
  return {std::istream_iterator<pid_t>(list), {}};
}

void end_descendants(pid_t except) noexcept {
  for (bool found = true; found;) {
    found = false;
    for (const pid_t pid : children()) {
      if (pid == except) continue;
      if (kill(pid, SIGKILL) != 0) continue;  // it belongs to another user by now
      if (waitpid(pid, nullptr, 0) == pid) found = true;
    }
  }
}

}  // namespace unet::apps
