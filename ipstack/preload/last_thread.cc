// last_thread.cc - the C library ends a process with its last thread, but counts the helper among them.
#include "ipstack/preload/last_thread.h"

#include <dirent.h>

#include <atomic>

#include "ipstack/preload/host.h"
#include "ipstack/preload/of_thread.h"

namespace unet::preload {
namespace {

std::atomic<bool> first_ended{false};

}  // namespace

LastThread::First::~First() {
  first_ended.store(true, std::memory_order_relaxed);
  Host::get().kick_helper();
}

void LastThread::watch_first() {
  first_ended.store(false, std::memory_order_relaxed);
  static_cast<void>(OfThread<First>::get());
}

bool LastThread::is_awaited() noexcept { return first_ended.load(std::memory_order_relaxed); }

// A first thread that has ended stays in the list while there are others.
bool LastThread::is_this() noexcept {
  DIR* const tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return false;
  int count = 0;
  while (const dirent* const each = ::readdir(tasks)) count += each->d_name[0] != '.' ? 1 : 0;
  ::closedir(tasks);
  return count == 2;
}

}  // namespace unet::preload
