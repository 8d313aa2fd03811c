// test_process.h - a child process that cannot outlive its test; for unit and system tests.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "unet/base/check.h"

namespace unet {

// How long a test waits for an expected event before it fails: a machine may be that busy.
constexpr int kHangSeconds = 60;

class ChildProcess {
 public:
  // Runs `body` in a forked copy of this process; its result is the exit status. Test assertions do not work there.
  template <typename Body>
  explicit ChildProcess(Body body) : pid_(fork()) {
    UNET_CHECK(pid_ >= 0);
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(10 * kHangSeconds);  // some children answer during a whole test
    _exit(body());
  }
  ~ChildProcess() { kill(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Returns the exit status; -1 if a signal ended the process.
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0) UNET_CHECK(errno == EINTR);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void kill(int signal = SIGKILL) {
    if (pid_ <= 0) return;
    ::kill(pid_, signal);
    wait();
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace unet
