// task_environment.h - the environment variables of a task; used by Runner.
#pragma once

#include <string>
#include <vector>

#include "apps/unet-agent/runner.h"

namespace unet::agent {

// NAME=VALUE: some that each user has, those of the job, and U-Net's. Nothing else of the agent's own environment.
std::vector<std::string> task_environment(const RunnerOptions& options, uint32_t rank, const std::string& directory);

}  // namespace unet::agent
