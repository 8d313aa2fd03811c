// other_user.h - what a hostile client does as another user; for `fairness`.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

namespace unet::bench {

constexpr uid_t kOtherUser = 65534;

// What `open` returns as another user, as far as this one may: only this thread, and only so long.
template <typename Open>
auto as_other_user(const Open& open) {
  const uid_t own = geteuid();
  if (own != 0) return open();
  if (syscall(SYS_setresuid, -1, kOtherUser, -1) != 0) abort();
  auto opened = open();
  if (syscall(SYS_setresuid, -1, own, -1) != 0) abort();
  return opened;
}

}  // namespace unet::bench
