// calls.h - what the functions that programs call have in common; used by the *_calls.cc of ipstack/preload.
#pragma once

#include <sys/epoll.h>

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

// A socket that is ours or may become so; nullptr: the kernel's, or it is this library itself that calls. To be asked again under the lock.
inline File* file_of(int fd) noexcept { return Runtime::inside() ? nullptr : Runtime::get().table().file(fd); }
inline EpollSet* epoll_of(int fd) noexcept {
  return Runtime::inside() ? nullptr : Runtime::get().table().as<EpollSet>(fd, Entry::Kind::epoll);
}

// Converts a result as calls return it: -1 and errno for -errno.
inline int64_t answer(int64_t result) noexcept {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}
// Converts a call's result back: -errno for -1 and errno.
template <typename T>
T result_of(T returned) noexcept {
  return returned < 0 ? static_cast<T>(-errno) : returned;
}

// While a call of the program's is the kernel's, which may make one of its descriptors ready.
struct AtKernel {
  AtKernel() noexcept = default;
  ~AtKernel() {
    if (!Runtime::inside()) KernelPace::note_call();
  }
  AtKernel(const AtKernel&) = delete;
  AtKernel& operator=(const AtKernel&) = delete;
};

// `call` on a file, which is there until it ends, though another thread may close it meanwhile.
template <typename Call>
auto holding(File& file, Call call) {
  const Hold hold(file);
  return call(file);
}

// The program is about to change its user or root. Connects to the network interface while it has the right to.
void before_user_change() noexcept;

// Times as calls have them, and as this library has them.
inline bool is_valid(const timespec& time) noexcept { return time.tv_sec >= 0 && time.tv_nsec >= 0 && time.tv_nsec < 1'000'000'000; }
inline Nanoseconds nanoseconds_of(const timespec& time) noexcept {
  return static_cast<Nanoseconds>(time.tv_sec) * kSecond + static_cast<Nanoseconds>(time.tv_nsec);
}

// A call has found none: O_ASYNC tells of it when there is some.
inline void tell_of_room(File& file) noexcept { file.signalled &= ~uint32_t{EPOLLOUT}; }

inline bool waits(const File& file, int flags) noexcept { return !file.nonblocking && (flags & MSG_DONTWAIT) == 0; }

}  // namespace unet::preload
