// command.h - finds another program, or runs it and waits for it: daemon.cc, kernels.cc; netns.cc calls `ip` and `ethtool` with it.
#pragma once

#include <string>
#include <vector>

#include "unet/base/result.h"

namespace unet::bench {

// The path of a program of ours: beside this one, as installed, or in this directory of the build tree, seen from apps/ ("kernels/mpi").
// The bare name, which is looked for in PATH, if it is in neither.
std::string find_program(const std::string& directory, const std::string& name);

// Where a program is in PATH, or in the directories of an administrator's; empty: nowhere.
std::string path_of(const std::string& name);

// Runs arguments[0] from PATH and returns its stdout; when it fails, an error with the command and its output.
Result<std::string> run_command(const std::vector<std::string>& arguments);

}  // namespace unet::bench
