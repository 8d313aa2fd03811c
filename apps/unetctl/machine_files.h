// machine_files.h - small files and directories of /proc and /sys, which may be missing; for doctor and nic.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace unet::unetctl {

// The first line of a file; empty if there is none.
inline std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The names in a directory, sorted; none if there is no such directory.
inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(directory, error)) found.push_back(each.path().filename());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace unet::unetctl
