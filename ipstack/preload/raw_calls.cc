// raw_calls.cc - syscall(), by which programs call the kernel without the C library's function of that name. Calls on descriptors go to the
// functions of this library, all others to the kernel.
#include <stdarg.h>
#include <sys/syscall.h>

#include <array>
#include <utility>

#include "ipstack/preload/calls.h"
#include "ipstack/preload/identity.h"

using namespace unet::preload;

namespace {

using Arguments = long[6];
using Call = long (*)(const Arguments&);

// Avoids the C library where that is possible, as the search for its function may take a lock of the loader.
long kernel(long number, const Arguments& all) noexcept {
#if defined(__x86_64__)
  register long fourth asm("r10") = all[3];
  register long fifth asm("r8") = all[4];
  register long sixth asm("r9") = all[5];
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(all[0]), "S"(all[1]), "d"(all[2]), "r"(fourth), "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  return result > -4096 ? answer(result) : result;
#else
  return real().syscall(number, all[0], all[1], all[2], all[3], all[4], all[5]);
#endif
}

template <typename T>
T argument(long value) noexcept {
  if constexpr (std::is_pointer_v<T>) return reinterpret_cast<T>(value);
  else return static_cast<T>(value);
}

template <typename Result, typename... Parameters, size_t... kAt>
long call_with(Result (*function)(Parameters...), const Arguments& all, std::index_sequence<kAt...>) {
  return static_cast<long>(function(argument<Parameters>(all[kAt])...));
}
template <typename Result, typename... Parameters>
long call_with(Result (*function)(Parameters...), const Arguments& all) {
  return call_with(function, all, std::index_sequence_for<Parameters...>());
}
// For a function that has the kernel's parameters, or the first of them.
template <auto kFunction>
long named(const Arguments& all) {
  return call_with(kFunction, all);
}

// A call that makes a descriptor.
template <long kNumber>
long makes(const Arguments& all) {
  return fresh(static_cast<int>(kernel(kNumber, all)));
}
// A call that makes two descriptors, and writes them to the argument `kWhere`.
template <long kNumber, size_t kWhere>
long makes_two(const Arguments& all) {
  const long result = kernel(kNumber, all);
  if (result != 0) return result;
  const int* const made = argument<const int*>(all[kWhere]);
  fresh(made[0]);
  fresh(made[1]);
  return 0;
}

// Changes the user of this thread alone, as the system call does.
template <long kNumber>
long changes_user(const Arguments& all) {
  before_user_change();
  return kernel(kNumber, all);
}

long read_at(const Arguments& all) {
  return preadv64v2(static_cast<int>(all[0]), argument<const iovec*>(all[1]), static_cast<int>(all[2]), all[3], static_cast<int>(all[5]));
}
long write_at(const Arguments& all) {
  return pwritev64v2(static_cast<int>(all[0]), argument<const iovec*>(all[1]), static_cast<int>(all[2]), all[3], static_cast<int>(all[5]));
}

long control(const Arguments& all) { return fcntl(static_cast<int>(all[0]), static_cast<int>(all[1]), all[2]); }
long control_device(const Arguments& all) { return ioctl(static_cast<int>(all[0]), static_cast<unsigned long>(all[1]), all[2]); }

// The kernel's pselect6() has the signal mask and its size in a structure.
long select_with_mask(const Arguments& all) {
  struct Mask {
    const sigset_t* signals;
    size_t size;
  };
  const auto* const mask = argument<const Mask*>(all[5]);
  return pselect(static_cast<int>(all[0]), argument<fd_set*>(all[1]), argument<fd_set*>(all[2]), argument<fd_set*>(all[3]),
                 argument<const timespec*>(all[4]), mask == nullptr ? nullptr : mask->signals);
}

[[noreturn]] long ends_process(const Arguments& all) { _exit(static_cast<int>(all[0])); }

// A ring would act on shadows. Programs fall back on calls where the kernel has none.
long has_no_rings(const Arguments&) { return answer(-long{ENOSYS}); }

constexpr size_t kNumbers = 512;

constexpr std::array<Call, kNumbers> all_calls() {
  std::array<Call, kNumbers> all{};
#define UNET_SAME(name) all[SYS_##name] = &named<&::name>
#define UNET_MAKES(name) all[SYS_##name] = &makes<SYS_##name>
  UNET_SAME(socket), UNET_SAME(bind), UNET_SAME(listen), UNET_SAME(accept), UNET_SAME(accept4), UNET_SAME(connect), UNET_SAME(shutdown);
  UNET_SAME(getsockname), UNET_SAME(getpeername), UNET_SAME(setsockopt), UNET_SAME(getsockopt);
  UNET_SAME(read), UNET_SAME(readv), UNET_SAME(recvfrom), UNET_SAME(recvmsg), UNET_SAME(recvmmsg);
  UNET_SAME(write), UNET_SAME(writev), UNET_SAME(sendto), UNET_SAME(sendmsg), UNET_SAME(sendmmsg), UNET_SAME(sendfile), UNET_SAME(splice);
  UNET_SAME(ppoll), UNET_SAME(epoll_create1), UNET_SAME(epoll_ctl), UNET_SAME(epoll_pwait), UNET_SAME(epoll_pwait2);
  UNET_SAME(close), UNET_SAME(close_range), UNET_SAME(dup), UNET_SAME(dup3), UNET_SAME(execve), UNET_SAME(chroot);
  all[SYS_exit_group] = &ends_process;
  all[SYS_preadv2] = &read_at;
  all[SYS_pwritev2] = &write_at;
  all[SYS_fcntl] = &control;
  all[SYS_ioctl] = &control_device;
  all[SYS_pselect6] = &select_with_mask;
  all[SYS_io_uring_setup] = &has_no_rings;
  UNET_MAKES(openat), UNET_MAKES(openat2), UNET_MAKES(eventfd2), UNET_MAKES(signalfd4), UNET_MAKES(timerfd_create);
  UNET_MAKES(inotify_init1), UNET_MAKES(memfd_create), UNET_MAKES(pidfd_open), UNET_MAKES(pidfd_getfd), UNET_MAKES(userfaultfd);
  UNET_MAKES(perf_event_open), UNET_MAKES(fanotify_init), UNET_MAKES(open_by_handle_at);
  all[SYS_pipe2] = &makes_two<SYS_pipe2, 0>;
  all[SYS_socketpair] = &makes_two<SYS_socketpair, 3>;
#if defined(__x86_64__)  // older calls
  UNET_SAME(poll), UNET_SAME(select), UNET_SAME(epoll_create), UNET_SAME(epoll_wait), UNET_SAME(dup2), UNET_SAME(fork);
  all[SYS_vfork] = &named<&::fork>;
  UNET_MAKES(open), UNET_MAKES(creat), UNET_MAKES(eventfd), UNET_MAKES(signalfd), UNET_MAKES(inotify_init);
  all[SYS_pipe] = &makes_two<SYS_pipe, 0>;
#endif
#define UNET_USER(name) all[SYS_##name] = &changes_user<SYS_##name>
  UNET_USER(setuid), UNET_USER(setgid), UNET_USER(setreuid), UNET_USER(setregid), UNET_USER(setresuid), UNET_USER(setresgid);
#undef UNET_SAME
#undef UNET_MAKES
#undef UNET_USER
  return all;
}

constexpr std::array<Call, kNumbers> calls = all_calls();

}  // namespace

// Reads six arguments even if there are fewer: the others are arbitrary, and their functions ignore them.
UNET_PRELOAD __attribute__((no_sanitize_address)) long syscall(long number, ...) noexcept {
  Arguments all;
  va_list list;
  va_start(list, number);
  for (long& each : all) each = va_arg(list, long);
  va_end(list);
  const Call ours = static_cast<unsigned long>(number) < kNumbers ? calls[static_cast<size_t>(number)] : nullptr;
  if (ours == nullptr || !Lock::has_begun() || Lock::inside()) return kernel(number, all);
  const Uncancelled uncancelled;  // as the C library's
  return ours(all);
}

// Functions of liburing, which makes system calls itself.
UNET_PRELOAD int io_uring_queue_init(unsigned, void*, unsigned) noexcept { return -ENOSYS; }
UNET_PRELOAD int io_uring_queue_init_params(unsigned, void*, void*) noexcept { return -ENOSYS; }
UNET_PRELOAD int io_uring_queue_init_mem(unsigned, void*, void*, void*, size_t) noexcept { return -ENOSYS; }
UNET_PRELOAD int io_uring_setup(unsigned, void*) noexcept { return -ENOSYS; }
