// real.h - the C library's functions, as programs find this library's functions of these names first; used by all of ipstack/preload.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

// Functions that programs find in this library first.
#define UNET_PRELOAD_FUNCTIONS(X)                                                                                                  \
  X(socket) X(bind) X(listen) X(accept) X(accept4) X(connect) X(shutdown) X(getsockname) X(getpeername) X(setsockopt) X(getsockopt) \
  X(read) X(readv) X(recv) X(recvfrom) X(recvmsg) X(recvmmsg) X(write) X(writev) X(send) X(sendto) X(sendmsg) X(sendmmsg)           \
  X(sendfile) X(sendfile64) X(splice) X(preadv64v2) X(pwritev64v2) X(vdprintf)                                                      \
  X(poll) X(ppoll) X(select) X(pselect) X(epoll_create) X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(epoll_pwait) X(epoll_pwait2) \
  X(open) X(open64) X(openat) X(openat64) X(creat) X(creat64) X(mkstemp) X(mkostemp) X(mkstemps) X(mkostemps) X(shm_open)          \
  X(pipe) X(pipe2) X(socketpair) X(eventfd) X(timerfd_create) X(signalfd) X(inotify_init) X(inotify_init1) X(fanotify_init)         \
  X(memfd_create) X(posix_openpt) X(fileno) X(fileno_unlocked) X(dirfd)                                                                \
  X(close) X(close_range) X(closefrom) X(dup) X(dup2) X(dup3) X(fcntl) X(fcntl64) X(ioctl) X(fdopen) X(freopen)                    \
  X(syscall) X(sigaction) X(_exit) X(_Exit) X(execve) X(execvpe) X(fexecve) X(posix_spawn) X(posix_spawnp) X(pthread_cancel)           \
  X(setuid) X(setgid) X(seteuid) X(setegid) X(setreuid) X(setregid) X(setresuid) X(setresgid) X(setgroups) X(initgroups) X(chroot) \
  X(getifaddrs) X(if_nametoindex) X(if_indextoname) X(if_nameindex) X(getaddrinfo)

namespace unet::preload {

struct Real {
#define UNET_PRELOAD_MEMBER(name) decltype(&::name) name;
  UNET_PRELOAD_FUNCTIONS(UNET_PRELOAD_MEMBER)
#undef UNET_PRELOAD_MEMBER
};

// The first call finds them, perhaps before this library's constructor has run.
const Real& real() noexcept;

// Converts a result of the C library to this library's convention: -errno instead of -1.
template <typename T>
T result_of(T returned) noexcept {
  return returned < 0 ? static_cast<T>(-errno) : returned;
}

// The C library's functions with this library's convention: -errno instead of -1. For calls that a program does not see.
struct Kernel {
#define UNET_PRELOAD_CALL(name)                         \
  template <typename... Arguments>                      \
  static auto name(Arguments... arguments) {            \
    return result_of(real().name(arguments...));        \
  }
  UNET_PRELOAD_FUNCTIONS(UNET_PRELOAD_CALL)
#undef UNET_PRELOAD_CALL
};

// Restores errno at its end.
struct ErrnoStays {
  const int before = errno;
  ~ErrnoStays() { errno = before; }
};

}  // namespace unet::preload
