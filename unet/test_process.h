// test_process.h - a child process of a test, which never outlives it; for unit and system tests.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "unet/base/check.h"

namespace unet {

// How long a test waits for what must happen before it calls it lost: a machine may be that busy.
constexpr int kHangSeconds = 60;

class ChildProcess {
 public:
  // Runs `body` in a copy of this process; what it returns is the exit status. No test assertion works in there.
  template <typename Body>
  explicit ChildProcess(Body body) : pid_(fork()) {
    UNET_CHECK(pid_ >= 0);
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(10 * kHangSeconds);  // some answer all along a test
    _exit(body());
  }
  ~ChildProcess() { kill(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The exit status; -1 if a signal ended it.
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
