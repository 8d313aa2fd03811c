// descendants.cc - reads the children of this process from /proc.
#include "apps/descendants.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

namespace unet::apps {

void adopt_descendants() noexcept { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void end_descendants(pid_t except) noexcept {
  const std::string self = std::to_string(getpid());
  for (bool found = true; found;) {
    found = false;
    std::ifstream list("/proc/" + self + "/task/" + self + "/children");
    for (pid_t pid = 0; list >> pid;) {
      if (pid == except) continue;
      if (kill(pid, SIGKILL) != 0) continue;  // it belongs to another user by now
      if (waitpid(pid, nullptr, 0) == pid) found = true;
    }
  }
}

void end_other_children(const std::set<pid_t>& kept) noexcept {
  const std::string self = std::to_string(getpid());
  std::ifstream list("/proc/" + self + "/task/" + self + "/children");
  for (pid_t pid = 0; list >> pid;) {
    if (!kept.contains(pid)) kill(pid, SIGKILL);
  }
}

}  // namespace unet::apps
