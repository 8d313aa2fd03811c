// syscall_filter_test.cc - what the filter stops, each in a child process of its own. System tests show that unetd works under it.
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "apps/unetd/syscall_filter.h"

namespace unet::unetd {
namespace {

struct End {
  int status = 0;
  std::string said;  // output on stderr
  bool killed() const { return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS; }
  bool well() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

// Runs `act` in a child that has the filter; its return value is the exit status.
template <typename Act>
End filtered(Act act, const std::vector<std::string>& ports = {}) {
  int pipe_of[2];
  REQUIRE(pipe(pipe_of) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(pipe_of[1], STDERR_FILENO);
    if (!install_syscall_filter(ports)) _exit(99);
    _exit(act());
  }
  close(pipe_of[1]);
  End end;
  char text[512];
  for (ssize_t size; (size = read(pipe_of[0], text, sizeof text)) > 0;) end.said.append(text, static_cast<size_t>(size));
  close(pipe_of[0]);
  REQUIRE(waitpid(child, &end.status, 0) == child);
  return end;
}

bool names(const End& end, const char* call) { return end.said.find(std::string("system call ") + call + " ") != std::string::npos; }

int in_a_thread(void* (*act)(void*)) {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, act, nullptr) != 0) return 1;
  void* result = nullptr;
  return pthread_join(thread, &result) == 0 && result == nullptr ? 0 : 2;
}

}  // namespace

TEST_CASE("what unetd needs goes on: threads, memory, reading, local sockets") {
  if (!syscall_filter_available()) {
    WARN("built with a sanitizer: no filter");
    return;
  }
  const End end = filtered([] {
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int local = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    return file >= 0 && memory != MAP_FAILED && local >= 0 ? in_a_thread([](void*) -> void* { return nullptr; }) : 1;
  });
  CHECK(end.said == "");
  CHECK(end.well());
}

TEST_CASE("each call that unetd does not need is named and ends the process") {
  if (!syscall_filter_available()) {
    WARN("built with a sanitizer: no filter");
    return;
  }
  const End execve = filtered([] { return execl("/bin/true", "true", nullptr); });
  CHECK((execve.killed() && names(execve, "execve")));
  const End fork = filtered([] { return static_cast<int>(::fork()); });
  CHECK((fork.killed() && names(fork, "clone")));
  const End inet = filtered([] { return socket(AF_INET, SOCK_STREAM, 0); });
  CHECK((inet.killed() && names(inet, "socket")));
  const End packet = filtered([] { return socket(AF_PACKET, SOCK_RAW, 0); }, {"dpdk:net_af_packet0,iface=eth0"});
  CHECK((packet.killed() && names(packet, "socket")));
  const End writes = filtered([] { return open("/dev/null", O_WRONLY | O_CLOEXEC); });
  CHECK((writes.killed() && names(writes, "openat")));
  const End creates = filtered([] { return open("/tmp/unet-filter-test", O_RDONLY | O_CREAT | O_CLOEXEC, 0600); });
  CHECK((creates.killed() && names(creates, "openat")));
  const End code = filtered([] {
    return mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? 1 : 0;
  });
  CHECK((code.killed() && names(code, "mmap")));
  const End trace = filtered([] { return static_cast<int>(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); });
  CHECK((trace.killed() && names(trace, "ptrace")));
  const End becomes = filtered([] { return setuid(0); });
  CHECK((becomes.killed() && names(becomes, "setuid")));
  const End signals = filtered([] { return kill(getppid(), 0); });
  CHECK((signals.killed() && names(signals, "kill")));
}

TEST_CASE("a thread is held to it like the first") {
  if (!syscall_filter_available()) {
    WARN("built with a sanitizer: no filter");
    return;
  }
  const End end = filtered([] {
    return in_a_thread([](void*) -> void* {
      execl("/bin/true", "true", nullptr);
      return nullptr;
    });
  });
  CHECK((end.killed() && names(end, "execve")));
}

}  // namespace unet::unetd
