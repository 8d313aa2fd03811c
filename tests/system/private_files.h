// private_files.h - /tmp and /dev/shm of a test's own, so that whatever is left there is its own; for system tests.
//
// Without the right to make them, and where the build itself lies in /tmp, all there is to look at is what others write to, too: then
// only the directories of the test's own are looked at.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace unet {

class PrivateFiles {
 public:
  PrivateFiles() { static_cast<void>(are_private()); }

  // Once per process, before it has a thread: for it and all of its children.
  static bool are_private() {
    static const bool made = make();
    return made;
  }

 private:
  static bool is_in_tmp(const char* path) { return path == nullptr || std::string_view(path).substr(0, 5) == "/tmp/"; }
  static bool make() {
    std::error_code error;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
    if (is_in_tmp(self.c_str()) || is_in_tmp(std::getenv("UNETD")) || ::unshare(CLONE_NEWNS) != 0) return false;
    return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 && ::mount("none", "/tmp", "tmpfs", 0, nullptr) == 0 &&
           ::mount("none", "/dev/shm", "tmpfs", 0, nullptr) == 0;
  }
};

// All there is in them now; if they are not the test's own, in `directory`, which is.
inline std::vector<std::string> all_files(const std::string& directory) {
  std::vector<std::string> all;
  std::vector<std::string> roots{"/tmp", "/dev/shm"};
  if (!PrivateFiles::are_private()) roots = {directory};
  for (const std::string& root : roots) {
    std::error_code error;
    for (const auto& each : std::filesystem::recursive_directory_iterator(root, error)) all.push_back(each.path().string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace unet
