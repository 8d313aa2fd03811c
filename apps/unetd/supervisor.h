// supervisor.h - the supervisor process of `unetd --takeover`. It starts the NI as a child, holds descriptors and journal for its clients,
// and starts another NI after a crash or for an upgrade. Used by main() alone.
#pragma once

#include <string>
#include <vector>

#include "apps/unetd/options.h"

namespace unet::unetd {

// Runs until the NI was stopped, or could not be replaced in time. Returns the exit status. `arguments` are those of this process, its name
// first.
int run_supervisor(const Options& options, std::vector<std::string> arguments);

}  // namespace unet::unetd
