// private_files.h - gives a test its own /tmp and /dev/shm, so that every file left there is the test's; for system tests.
//
// Without the right to mount them, or if the build itself lies in /tmp, others write there too. Then only the test's own directories are
// checked.
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

  // Tries once in a process, before it has threads; holds for all of its children.
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

// All files there now; in `directory` only, if /tmp and /dev/shm are not the test's own.
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
