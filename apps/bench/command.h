// command.h - runs another program and waits for it; netns.cc calls `ip` and `ethtool` with it.
#pragma once

#include <string>
#include <vector>

#include "unet/base/result.h"

namespace unet::bench {

// Runs arguments[0] from PATH. What it printed on stdout; when it fails, an error with the command and what it said.
Result<std::string> run_command(const std::vector<std::string>& arguments);

}  // namespace unet::bench
