// other_user.h - what a hostile client does as another user; for `fairness`.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>

#include "unet/base/result.h"

namespace unet::bench {

constexpr uid_t kOtherUser = 65534;

// Calls open() as another user if this user may change: this thread only, during the call only. With `group`: in that group, too.
template <typename Open>
auto as_other_user(const Open& open, std::optional<gid_t> group = {}) -> decltype(open()) {
  const uid_t own = geteuid();
  const gid_t own_group = getegid();
  if (own != 0) return open();
  if (group && syscall(SYS_setresgid, -1, *group, -1) != 0) return fail_errno("setresgid", errno);
  if (syscall(SYS_setresuid, -1, kOtherUser, -1) != 0) return fail_errno("setresuid", errno);
  auto opened = open();
  if (syscall(SYS_setresuid, -1, own, -1) != 0) abort();
  if (group && syscall(SYS_setresgid, -1, own_group, -1) != 0) abort();
  return opened;
}

}  // namespace unet::bench
