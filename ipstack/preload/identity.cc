// identity.cc - finds sockets that were closed without this library.
#include "ipstack/preload/identity.h"

#include <sys/stat.h>

#include <cerrno>

#include "ipstack/preload/epoll_set.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"

namespace unet::preload {
namespace {

// Each socket has an inode of its own. All epoll sets share one inode, without a file type, with other anonymous descriptors.
bool is_named(const Entry& entry, int fd) noexcept {
  struct stat is;
  if (::fstat(fd, &is) != 0) return false;
  if (entry.kind == Entry::Kind::epoll) return (is.st_mode & S_IFMT) == 0;
  return is.st_ino == static_cast<const File&>(entry).shadow;
}

// Takes a pair out of the kernel's epoll sets before its descriptor is closed. The kernel would leave it in while another process has it.
void leave_sets(const File& pair, int fd) {
  for (const Registration* each : pair.registrations) {
    if (each->fd != fd || each->set->fds.empty()) continue;
    if (real().epoll_ctl(each->set->fds.front(), EPOLL_CTL_DEL, each->fd, nullptr) == 0) --each->set->kernel_members;
  }
}

}  // namespace

uint64_t inode_of(int fd) noexcept {
  struct stat is;
  return ::fstat(fd, &is) == 0 ? is.st_ino : 0;
}

int fresh(int fd) noexcept {
  if (fd < 0 || !Lock::has_begun() || Lock::inside() || Runtime::get().table().find(fd) == nullptr ||
      !Runtime::get().lock().is_own_process()) [[likely]] {
    return fd;
  }
  const ErrnoStays stays;
  {
    const Uncancelled uncancelled;
    const Runtime::Guard guard;
    forget(fd);
  }
  return fd;
}

Entry* take_out(int fd) {
  Entry* const entry = Runtime::get().table().take(fd);
  if (entry == nullptr || entry->kind != Entry::Kind::socket) return entry;
  const File& file = static_cast<const File&>(*entry);
  if (file.pair && !file.in_other_process) leave_sets(file, fd);
  return entry;
}

void forget(int fd) {
  if (Entry* const entry = Runtime::get().table().take(fd)) Runtime::get().let_go(*entry);
}

bool verify(int fd) {
  const Entry* const entry = Runtime::get().table().find(fd);
  if (entry == nullptr) return false;
  const ErrnoStays stays;
  const bool named = is_named(*entry, fd);
  if (!named) forget(fd);
  return named;
}

void verify_some() {
  constexpr int kAtOnce = 16;
  static int next = 0;
  const int end = Runtime::get().table().end();
  for (int i = 0; i < std::min(kAtOnce, end); ++i) {
    next = next < end ? next : 0;
    static_cast<void>(verify(next++));
  }
}

}  // namespace unet::preload
