// supervisor.h - the process that `unetd --takeover` is: it starts the network interface as a child, holds what its clients would miss,
// and starts another one when it dies or is to be upgraded; used by main() alone.
#pragma once

#include <string>
#include <vector>

#include "apps/unetd/options.h"

namespace unet::unetd {

// Runs until the network interface was stopped, or could not be replaced in time. Returns the exit status. `arguments` are those of
// this process, its name first.
int run_supervisor(const Options& options, std::vector<std::string> arguments);

}  // namespace unet::unetd
