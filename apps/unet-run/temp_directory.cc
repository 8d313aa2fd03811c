// temp_directory.cc - mkdtemp, and the janitor that removes the directory.
#include "apps/unet-run/temp_directory.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <vector>

namespace unet::run {
namespace {

[[noreturn]] void be_janitor(Descriptor ready, int alive, const std::string& directory, const std::string& socket) {
  // A signal for the run must not end the janitor; Ctrl-C reaches the whole process group.
  setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  ready.reset();
  char byte = 0;
  while (read(alive, &byte, 1) < 0 && errno == EINTR) {
  }
  unlink(socket.c_str());
  rmdir(directory.c_str());
  _exit(0);
}

}  // namespace

Result<TempDirectory> TempDirectory::create() {
  const char* base = std::getenv("TMPDIR");
  const std::string pattern = std::string(base != nullptr && *base != '\0' ? base : "/tmp") + "/unet-run-XXXXXX";
  std::vector<char> path(pattern.begin(), pattern.end());
  path.push_back('\0');
  if (mkdtemp(path.data()) == nullptr) return fail_errno("mkdtemp(" + pattern + ")", errno);
  const std::string directory = path.data();
  int pipe_ends[2], ready_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0 || pipe2(ready_ends, O_CLOEXEC) != 0) {
    const int error = errno;
    rmdir(directory.c_str());
    return fail_errno("pipe", error);
  }
  Descriptor alive(pipe_ends[1]), ready(ready_ends[1]);
  const Descriptor watch(pipe_ends[0]), is_ready(ready_ends[0]);
  const pid_t janitor = fork();
  if (janitor < 0) {
    const int error = errno;
    rmdir(directory.c_str());
    return fail_errno("fork", error);
  }
  if (janitor == 0) {
    alive.reset();
    be_janitor(std::move(ready), watch.get(), directory, directory + "/ni.sock");
  }
  // Wait until the janitor has its own session. Until then it would be ended as a process that a program has left behind.
  ready.reset();
  char byte = 0;
  while (read(is_ready.get(), &byte, 1) < 0 && errno == EINTR) {
  }
  return TempDirectory(directory, std::move(alive), janitor);
}

TempDirectory::~TempDirectory() {
  if (!alive_.valid()) return;
  alive_.reset();
  while (waitpid(janitor_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace unet::run
