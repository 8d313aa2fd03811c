// runner.h - the process between an agent and the tasks of one job: it writes the files, starts the tasks, and ends with nothing left. Used
// by AgentSite.
//
// A runner is the last node of its branch of the tree: it says the records of am/rpc/task/record.h over a socket, one in a packet. Its end
// of file ends the tasks, so they end with the agent, too.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "am/rpc/task/spec.h"
#include "unet/base/result.h"
#include "unet/mapping.h"

namespace unet::agent {

struct RunnerOptions {
  rpc::JobSpec job;
  uint32_t node = 0;
  // The user of the tasks.
  uid_t user = 0;
  gid_t group = 0;
  std::string name, home;
  std::string ni;         // for UNET_NI
  std::string directory;  // to make, the private one of the job
};

// The calling process becomes the user of the tasks.
Status become_user(const RunnerOptions& options);

// Runs in a child process. Returns when all is over: false if processes are left that it may not end (set-user-id programs).
bool run_tasks(Descriptor socket, const RunnerOptions& options);

}  // namespace unet::agent
