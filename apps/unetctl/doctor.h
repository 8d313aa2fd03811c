// doctor.h - unetctl doctor: what this machine lacks, and what makes U-Net slow on it, each with the line that mends it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace unet::unetctl {

struct Machine {
  std::filesystem::path root = "/";  // with /proc, /sys and /dev
  std::string socket;                // of this host's unetd
};

struct Finding {
  enum class State { ok, slow, missing };
  State state = State::ok;
  std::string found;
  std::string remedy;  // a command, or a sentence; empty if ok
  std::string check = {};
};

// The checks in a fixed order. Each reads files only, except that of the service, which asks it.
std::vector<Finding> examine(const Machine& machine);

std::string show_findings(const std::vector<Finding>& findings, bool as_json);

}  // namespace unet::unetctl
