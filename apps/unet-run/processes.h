// processes.h - the N processes of a run: started together, ended together.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "apps/unet-run/options.h"
#include "apps/unet-run/output.h"
#include "unet/base/result.h"

namespace unet::run {

class Processes {
 public:
  // Forks and executes all of them; each gets UNET_NI, UNET_RANK, UNET_SIZE, its core, and dies with this process. If one
  // cannot be executed, the others are ended and the error says why. Call it before the first thread starts; the processes
  // begin only when release() is called. What they print goes to `output`, if there is one. Rank 0 has our standard input, the others
  // have /dev/null. `janitor` (temp_directory.h) is the one child of ours that stays when they have ended.
  static Result<Processes> start(const Options& options, const std::string& socket, LabelledOutput* output, pid_t janitor);
  Processes(Processes&&) = default;
  Processes& operator=(Processes&&) = delete;
  ~Processes();

  // Lets the programs begin: the network interface is there.
  Status release();

  // Waits for all. Signals that come meanwhile go to all; when one fails, the others get SIGTERM, and SIGKILL after
  // two seconds. Returns the exit status of the first that failed (128 + signal for one that a signal ended), or 0.
  int wait();

 private:
  Processes() = default;
  void signal_all(int signal) noexcept;
  void note_end(pid_t pid, int status);
  void end_orphans() const noexcept;

  struct Process {
    pid_t pid = 0;
    uint32_t rank = 0;
    bool running = true;
  };
  std::vector<Process> processes_;
  Descriptor gate_;     // closed by release(): the children wait for it
  Descriptor errors_;   // a child that cannot execute its program writes errno here
  std::string program_;
  pid_t janitor_ = 0;
  size_t running_ = 0;
  int first_failure_ = 0;
};

}  // namespace unet::run
