// remote.h - unet-run --hosts: a job on other hosts, from its start by their agents to its exit status; used by main().
#pragma once

#include "apps/unet-run/options.h"

namespace unet::run {

// Returns the exit status of unet-run.
int run_remote(const Options& options);

}  // namespace unet::run
