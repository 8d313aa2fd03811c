// stale_names.cc - a look at a directory and at the processes that its names tell.
#include "apps/bench/machine/stale_names.h"

#include <signal.h>

#include <cerrno>
#include <filesystem>

namespace unet::bench {

std::vector<std::string> stale_names(const char* directory, const std::function<pid_t(const std::string&)>& owner) {
  std::vector<std::string> stale;
  std::error_code error;
  for (std::filesystem::directory_iterator each(directory, error), end; !error && each != end; each.increment(error)) {
    std::string name = each->path().filename();
    const pid_t pid = owner(name);
    if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) stale.push_back(std::move(name));
  }
  return stale;
}

}  // namespace unet::bench
