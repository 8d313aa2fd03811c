// processes.h - the N processes of a run: they start together and end together.
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
  // Forks and executes all of them. Each gets UNET_NI, UNET_RANK, UNET_SIZE and its core, and dies with this process. If one cannot be
  // executed, the others are ended and the error says why. Call it before the first thread starts; the programs begin only at release().
  // `output`, if not nullptr, gets their output. Rank 0 has our standard input, the others have /dev/null. `janitor` (temp_directory.h) is
  // the only child of ours that survives them.
  static Result<Processes> start(const Options& options, const std::string& socket, LabelledOutput* output, pid_t janitor);
  Processes(Processes&&) = default;
  Processes& operator=(Processes&&) = delete;
  ~Processes();

  // Lets the programs begin. The network interface must listen.
  Status release();

  // Waits for all. Passes signals on to all. When one fails, the others get SIGTERM, and SIGKILL after two seconds. Returns the exit status
  // of the first that failed (128 + signal if a signal ended it), or 0.
  int wait();

 private:
  Processes() = default;
  void signal_all(int signal) noexcept;
  void note_end(pid_t pid, int status);

  struct Process {
    pid_t pid = 0;
    uint32_t rank = 0;
    bool running = true;
  };
  std::vector<Process> processes_;
  Descriptor gate_;     // the children wait until release() closes it
  Descriptor errors_;   // a child that cannot execute its program writes errno here
  std::string program_;
  pid_t janitor_ = 0;
  size_t running_ = 0;
  int first_failure_ = 0;
};

}  // namespace unet::run
