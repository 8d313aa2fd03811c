// open_calls.cc - calls that make descriptors other than sockets. A new number may be that of a socket that was closed without this library
// (identity.h).
#include <stdarg.h>
#include <sys/syscall.h>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/identity.h"

using namespace unet::preload;

namespace {

int fresh_two(int result, const int* made) noexcept {
  if (result != 0) return result;
  fresh(made[0]);
  fresh(made[1]);
  return 0;
}

// The mode of open(), an argument only where it makes a file.
mode_t mode_of(int flags, va_list& list) noexcept {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(list, mode_t) : 0;
}

// The descriptor of a stream, which the C library may have opened without a call that this library sees.
int number_of(int fd) noexcept {
  if (fd < 0 || Lock::inside() || Runtime::get().table().find(fd) == nullptr || !Runtime::get().lock().is_own_process()) return fd;
  const Uncancelled uncancelled;
  const Runtime::Guard guard;
  static_cast<void>(verify(fd));
  return fd;
}

}  // namespace

#define UNET_OPEN(name)                                  \
  UNET_PRELOAD int name(const char* path, int flags, ...) { \
    va_list list;                                        \
    va_start(list, flags);                               \
    const mode_t mode = mode_of(flags, list);            \
    va_end(list);                                        \
    return fresh(real().name(path, flags, mode));        \
  }
#define UNET_OPEN_AT(name)                                               \
  UNET_PRELOAD int name(int directory, const char* path, int flags, ...) { \
    va_list list;                                                        \
    va_start(list, flags);                                               \
    const mode_t mode = mode_of(flags, list);                            \
    va_end(list);                                                        \
    return fresh(real().name(directory, path, flags, mode));             \
  }
UNET_OPEN(open)
UNET_OPEN(open64)
UNET_OPEN_AT(openat)
UNET_OPEN_AT(openat64)
UNET_PRELOAD int creat(const char* path, mode_t mode) { return fresh(real().creat(path, mode)); }
UNET_PRELOAD int creat64(const char* path, mode_t mode) { return fresh(real().creat64(path, mode)); }

// Programs built with _FORTIFY_SOURCE call these instead.
UNET_PRELOAD int __open_2(const char* path, int flags) { return open(path, flags); }
UNET_PRELOAD int __open64_2(const char* path, int flags) { return open64(path, flags); }
UNET_PRELOAD int __openat_2(int directory, const char* path, int flags) { return openat(directory, path, flags); }
UNET_PRELOAD int __openat64_2(int directory, const char* path, int flags) { return openat64(directory, path, flags); }

UNET_PRELOAD int mkstemp(char* path) { return fresh(real().mkstemp(path)); }
UNET_PRELOAD int mkstemp64(char* path) { return mkstemp(path); }
UNET_PRELOAD int mkostemp(char* path, int flags) { return fresh(real().mkostemp(path, flags)); }
UNET_PRELOAD int mkostemp64(char* path, int flags) { return mkostemp(path, flags); }
UNET_PRELOAD int mkstemps(char* path, int suffix) { return fresh(real().mkstemps(path, suffix)); }
UNET_PRELOAD int mkstemps64(char* path, int suffix) { return mkstemps(path, suffix); }
UNET_PRELOAD int mkostemps(char* path, int suffix, int flags) { return fresh(real().mkostemps(path, suffix, flags)); }
UNET_PRELOAD int mkostemps64(char* path, int suffix, int flags) { return mkostemps(path, suffix, flags); }
UNET_PRELOAD int shm_open(const char* name, int flags, mode_t mode) { return fresh(real().shm_open(name, flags, mode)); }
UNET_PRELOAD int posix_openpt(int flags) { return fresh(real().posix_openpt(flags)); }

UNET_PRELOAD int pipe(int made[2]) noexcept { return fresh_two(real().pipe(made), made); }
UNET_PRELOAD int pipe2(int made[2], int flags) noexcept { return fresh_two(real().pipe2(made, flags), made); }
UNET_PRELOAD int socketpair(int domain, int type, int protocol, int made[2]) noexcept {
  return fresh_two(real().socketpair(domain, type, protocol, made), made);
}

UNET_PRELOAD int eventfd(unsigned count, int flags) noexcept { return fresh(real().eventfd(count, flags)); }
UNET_PRELOAD int timerfd_create(clockid_t clock, int flags) noexcept { return fresh(real().timerfd_create(clock, flags)); }
UNET_PRELOAD int signalfd(int fd, const sigset_t* mask, int flags) noexcept {
  const int made = real().signalfd(fd, mask, flags);
  return fd < 0 ? fresh(made) : made;
}
UNET_PRELOAD int inotify_init() noexcept { return fresh(real().inotify_init()); }
UNET_PRELOAD int inotify_init1(int flags) noexcept { return fresh(real().inotify_init1(flags)); }
UNET_PRELOAD int fanotify_init(unsigned flags, unsigned event_flags) noexcept { return fresh(real().fanotify_init(flags, event_flags)); }
UNET_PRELOAD int memfd_create(const char* name, unsigned flags) noexcept { return fresh(real().memfd_create(name, flags)); }
UNET_PRELOAD int pidfd_open(pid_t process, unsigned flags) noexcept { return static_cast<int>(syscall(SYS_pidfd_open, process, flags)); }
UNET_PRELOAD int pidfd_getfd(int process, int fd, unsigned flags) noexcept {
  return static_cast<int>(syscall(SYS_pidfd_getfd, process, fd, flags));
}

UNET_PRELOAD int fileno(FILE* stream) noexcept { return number_of(real().fileno(stream)); }
UNET_PRELOAD int fileno_unlocked(FILE* stream) noexcept { return number_of(real().fileno_unlocked(stream)); }
UNET_PRELOAD int dirfd(DIR* directory) noexcept { return number_of(real().dirfd(directory)); }
