// command.h - finds another program, or runs it and waits for it: daemon.cc, kernels.cc; netns.cc calls `ip` and `ethtool` with it.
#pragma once

#include <string>
#include <vector>

#include "unet/base/result.h"

namespace unet::bench {

// The path of a program of ours: beside this program, as installed, or in `directory` of the build tree, relative to apps/ ("kernels/mpi").
// If it is in neither, the bare name, for a search in PATH.
std::string find_program(const std::string& directory, const std::string& name);

// The path of a program found in PATH or in an administrator's directories; empty if there is none.
std::string path_of(const std::string& name);

// Runs arguments[0] from PATH and returns its stdout; when it fails, an error with the command and its output.
Result<std::string> run_command(const std::vector<std::string>& arguments);

// The variables, as "NAME=VALUE", by which programs of libfabric find our provider and this network interface.
std::vector<std::string> provider_environment(const std::string& ni);

}  // namespace unet::bench
