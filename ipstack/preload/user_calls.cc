// user_calls.cc - calls that change the user or the root directory of the process. They first connect to the network interface, as the
// process may lose the right to.
#include <grp.h>
#include <unistd.h>

#include "ipstack/preload/calls.h"

using namespace unet::preload;

namespace {

template <typename Change>
int change(Change call) noexcept {
  before_user_change();
  return call();
}

}  // namespace

void unet::preload::before_user_change() noexcept {
  if (!Runtime::may_enter()) return;
  const Runtime::Guard guard;
  Runtime::get().reserve_interface();
}

// Below a new root there is no control socket.
UNET_PRELOAD int chroot(const char* path) noexcept { return change([&] { return real().chroot(path); }); }

UNET_PRELOAD int setuid(uid_t user) noexcept { return change([&] { return real().setuid(user); }); }
UNET_PRELOAD int setgid(gid_t group) noexcept { return change([&] { return real().setgid(group); }); }
UNET_PRELOAD int seteuid(uid_t user) noexcept { return change([&] { return real().seteuid(user); }); }
UNET_PRELOAD int setegid(gid_t group) noexcept { return change([&] { return real().setegid(group); }); }
UNET_PRELOAD int setreuid(uid_t own, uid_t effective) noexcept { return change([&] { return real().setreuid(own, effective); }); }
UNET_PRELOAD int setregid(gid_t own, gid_t effective) noexcept { return change([&] { return real().setregid(own, effective); }); }
UNET_PRELOAD int setresuid(uid_t own, uid_t effective, uid_t saved) noexcept {
  return change([&] { return real().setresuid(own, effective, saved); });
}
UNET_PRELOAD int setresgid(gid_t own, gid_t effective, gid_t saved) noexcept {
  return change([&] { return real().setresgid(own, effective, saved); });
}
UNET_PRELOAD int setgroups(size_t count, const gid_t* groups) noexcept { return change([&] { return real().setgroups(count, groups); }); }
UNET_PRELOAD int initgroups(const char* user, gid_t group) { return change([&] { return real().initgroups(user, group); }); }
