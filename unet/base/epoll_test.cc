// epoll_test.cc - waits with and without epoll_pwait2(2).
#include "unet/base/epoll.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>

namespace unet::epoll_test {
namespace {

// Makes this process's kernel refuse epoll_pwait2() from here on. Returns false if that is impossible.
bool forget_epoll_pwait2() {
  std::array<sock_filter, 4> filter{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Returns 0, or the number of the check that failed.
int wait_in_every_way() {
  const int set = epoll_create1(EPOLL_CLOEXEC), event = eventfd(0, EFD_CLOEXEC);
  epoll_event wanted{.events = EPOLLIN, .data = {.u64 = 7}};
  if (epoll_ctl(set, EPOLL_CTL_ADD, event, &wanted) != 0) return 1;
  std::array<epoll_event, 2> ready{};
  if (wait_epoll(set, ready, 0) != 0) return 2;
  const Nanoseconds start = monotonic_now();
  if (wait_epoll(set, ready, 1'500 * kMicrosecond) != 0) return 3;
  if (monotonic_now() - start < 1'500 * kMicrosecond) return 4;
  const uint64_t one = 1;
  if (::write(event, &one, sizeof one) != sizeof one) return 5;
  if (wait_epoll(set, ready, ~Nanoseconds{0}) != 1 || ready[0].data.u64 != 7) return 6;
  if (wait_epoll(set, ready, ~Nanoseconds{0} - 1) != 1) return 7;
  if (wait_epoll(event, ready, 0) != -1 || errno != EINVAL) return 8;
  return 0;
}

TEST_CASE("waiting for less than a millisecond, for ever, and not at all") { CHECK(wait_in_every_way() == 0); }

TEST_CASE("the same on a kernel without epoll_pwait2") {
  constexpr int kNoFilters = 77;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(forget_epoll_pwait2() ? wait_in_every_way() : kNoFilters);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoFilters) {
    WARN("this machine allows no seccomp filter: not tried");
  } else {
    CHECK(WEXITSTATUS(status) == 0);
  }
}

}  // namespace
}  // namespace unet::epoll_test
