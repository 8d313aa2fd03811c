// last_thread.cc - the C library ends a process with its last thread, but counts the helper among them.
#include "ipstack/preload/last_thread.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "ipstack/preload/thread_specific.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"

namespace unet::preload {
namespace {

std::atomic<bool> first_ended{false};

// The state of the first thread, which has the number of the process; Z when it has ended. It may still run the program's own destructors.
char state_of_first() noexcept {
  char path[48], text[512] = "";
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", static_cast<int>(getpid()));
  const int fd = real().open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t size = real().read(fd, text, sizeof text - 1);
  real().close(fd);
  const char* const end = size > 0 ? std::strrchr(text, ')') : nullptr;  // end of the program's name
  return end != nullptr && end[1] == ' ' ? end[2] : 0;
}

}  // namespace

LastThread::First::~First() {
  first_ended.store(true, std::memory_order_relaxed);
  Runtime::get().poller().kick_helper();
}

void LastThread::watch_first() {
  first_ended.store(false, std::memory_order_relaxed);
  static_cast<void>(ThreadSpecific<First>::get());
}

bool LastThread::is_awaited() noexcept { return first_ended.load(std::memory_order_relaxed); }

// A first thread that has ended stays in the list while there are others.
bool LastThread::is_this() noexcept {
  if (state_of_first() != 'Z') return false;
  DIR* const tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return false;
  int count = 0;
  while (const dirent* const each = ::readdir(tasks)) count += each->d_name[0] != '.' ? 1 : 0;
  ::closedir(tasks);
  return count == 2;
}

}  // namespace unet::preload
