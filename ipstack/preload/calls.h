// calls.h - what the functions that programs call have in common; used by the *_calls.cc of ipstack/preload.
#pragma once

#include <sys/epoll.h>
#include <sys/time.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

#include "ipstack/preload/kernel_pace.h"
#include "ipstack/preload/real.h"
#include "ipstack/preload/runtime.h"
#include "ipstack/preload/socket_routing.h"

// A function that programs find instead of the C library's.
#define UNET_PRELOAD extern "C" __attribute__((visibility("default")))

namespace unet::preload {

// The file of a descriptor; nullptr: the kernel's alone, or this library itself calls. Another thread may close it, so ask again under the
// lock.
inline File* file_of(int fd) noexcept { return Lock::inside() ? nullptr : Runtime::get().table().file(fd); }
inline EpollSet* epoll_of(int fd) noexcept {
  return Lock::inside() ? nullptr : Runtime::get().table().as<EpollSet>(fd, Entry::Kind::epoll);
}

// Inside of this library an error is -errno. This function makes -1 and errno of it where a function that the program has called returns.
template <typename T>
T answer(T result) noexcept {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// For the time of a call that the kernel may serve. Such a call may make a kernel descriptor of the program ready.
struct AtKernel {
  AtKernel() noexcept = default;
  ~AtKernel() {
    if (!Lock::inside()) KernelPace::note_call();
  }
  AtKernel(const AtKernel&) = delete;
  AtKernel& operator=(const AtKernel&) = delete;
};

// A call of the program on a descriptor: calls ours(File&) under the lock if the descriptor has a file, else kernel(). `ours` returns
// -errno for an error, and kAskKernel for kernel(). `kWaits`: the call may wait, so it is a cancellation point.
template <bool kWaits = false, typename Ours, typename Kernel>
auto call_on(int fd, Ours ours, Kernel kernel) -> decltype(kernel()) {
  if (file_of(fd) != nullptr) {
    if constexpr (kWaits) ::pthread_testcancel();
    const Runtime::Guard guard;
    if (File* const file = Runtime::get().file(fd)) {
      const int64_t result = [&]() -> int64_t {
        const Hold hold(*file);  // another thread may close it meanwhile
        return ours(*file);
      }();
      if (result != kAskKernel) return static_cast<decltype(kernel())>(answer(result));
    }
  }
  return kernel();
}

// The program is about to change its user or root. Connects to the network interface while the process has the right to.
void before_user_change() noexcept;

// Conversions of time.
inline bool is_valid(const timespec& time) noexcept { return time.tv_sec >= 0 && time.tv_nsec >= 0 && time.tv_nsec < 1'000'000'000; }
inline Nanoseconds nanoseconds_of(const timespec& time) noexcept {
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_nsec);
}
inline Nanoseconds nanoseconds_of(const timeval& time) noexcept {
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_usec) * kMicrosecond;
}

// A call has found no room, so O_ASYNC signals the next room.
inline void rearm_room_signal(File& file) noexcept { file.signalled &= ~uint32_t{EPOLLOUT}; }

inline bool waits(const File& file, int flags) noexcept { return !file.nonblocking && (flags & MSG_DONTWAIT) == 0; }

}  // namespace unet::preload
