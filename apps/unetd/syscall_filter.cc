// syscall_filter.cc - the list of permitted calls, each with its reason, as rules of libseccomp.
#include "apps/unetd/syscall_filter.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace unet::unetd {
namespace {

using Filter = std::unique_ptr<void, decltype(&seccomp_release)>;

// Permitted with any arguments.
constexpr int kAlways[] = {
    // open descriptors, and new ones that lead nowhere
    SCMP_SYS(read), SCMP_SYS(readv), SCMP_SYS(pread64), SCMP_SYS(write), SCMP_SYS(writev), SCMP_SYS(pwrite64), SCMP_SYS(lseek),
    SCMP_SYS(close), SCMP_SYS(dup), SCMP_SYS(dup2), SCMP_SYS(dup3), SCMP_SYS(fcntl), SCMP_SYS(fstat), SCMP_SYS(ftruncate), SCMP_SYS(fchmod),
    SCMP_SYS(memfd_create), SCMP_SYS(eventfd2), SCMP_SYS(timerfd_create), SCMP_SYS(timerfd_settime),
    // waiting
    SCMP_SYS(epoll_create), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_pwait2), SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(select), SCMP_SYS(pselect6), SCMP_SYS(nanosleep),
    SCMP_SYS(clock_nanosleep), SCMP_SYS(futex), SCMP_SYS(sched_yield), SCMP_SYS(membarrier),
    // open sockets
    SCMP_SYS(accept), SCMP_SYS(accept4), SCMP_SYS(sendto), SCMP_SYS(sendmsg), SCMP_SYS(sendmmsg), SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg), SCMP_SYS(recvmmsg), SCMP_SYS(shutdown), SCMP_SYS(getsockopt), SCMP_SYS(setsockopt), SCMP_SYS(getsockname),
    SCMP_SYS(getpeername), SCMP_SYS(connect), SCMP_SYS(bind), SCMP_SYS(listen),
    // memory
    SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(brk), SCMP_SYS(mlock), SCMP_SYS(munlock), SCMP_SYS(fallocate),
    SCMP_SYS(get_mempolicy), SCMP_SYS(set_mempolicy), SCMP_SYS(mbind),
    // threads, signals, time
    SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(gettid), SCMP_SYS(getpid),
    SCMP_SYS(sched_getaffinity), SCMP_SYS(sched_setaffinity), SCMP_SYS(setpriority), SCMP_SYS(getcpu), SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack), SCMP_SYS(restart_syscall), SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres), SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(getrandom),
    // identity of process and host
    SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid), SCMP_SYS(getegid), SCMP_SYS(getgroups), SCMP_SYS(getppid),
    SCMP_SYS(uname), SCMP_SYS(sysinfo), SCMP_SYS(getrlimit), SCMP_SYS(getrusage), SCMP_SYS(times),
    // looking at files: the policy, users' names, the time zone
    SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(newfstatat),
    SCMP_SYS(statx), SCMP_SYS(getdents64), SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(getcwd), SCMP_SYS(fadvise64),
    // removing the control socket; a memif server removes its own
    SCMP_SYS(unlink),
};

// libxdp removes its program from an interface, under a lock in a directory of its own.
constexpr int kXdp[] = {SCMP_SYS(bpf), SCMP_SYS(mkdir), SCMP_SYS(rmdir), SCMP_SYS(unlinkat), SCMP_SYS(flock), SCMP_SYS(statfs),
                        SCMP_SYS(fstatfs)};

constexpr uint64_t kLow = 0xFFFF'FFFF;  // the kernel reads only 32 bits of the arguments below

struct Masked {
  int call;
  unsigned argument;
  uint64_t mask, value;
};

// A call may be allowed by several of these lines. Files are opened for reading. Memory is writable or executable, never both. A clone is a
// thread. prctl sets a name. A thread may lower its priority. Devices get no request that a terminal would take as input.
constexpr Masked kMasked[] = {
    {SCMP_SYS(openat), 2, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY},
    {SCMP_SYS(open), 1, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY},
    {SCMP_SYS(mmap), 2, PROT_EXEC, 0},
    {SCMP_SYS(mmap), 2, PROT_WRITE, 0},
    {SCMP_SYS(mprotect), 2, PROT_EXEC, 0},
    {SCMP_SYS(mprotect), 2, PROT_WRITE, 0},
    {SCMP_SYS(clone), 0, CLONE_THREAD, CLONE_THREAD},
    {SCMP_SYS(prctl), 0, kLow, PR_SET_NAME},
    {SCMP_SYS(prctl), 0, kLow, PR_GET_NAME},
    {SCMP_SYS(sched_setscheduler), 1, kLow, SCHED_BATCH},  // the thread of long wake-ups
    {SCMP_SYS(prlimit64), 2, ~uint64_t{0}, 0},
    {SCMP_SYS(socket), 0, kLow, AF_UNIX},
    {SCMP_SYS(socketpair), 0, kLow, AF_UNIX},  // in the greeting of a memif client
    {SCMP_SYS(ioctl), 1, 0xFFFF'FF00, 0x8900},   // of sockets and interfaces
    {SCMP_SYS(ioctl), 1, 0xFF80, 0x5480},        // of taps
    {SCMP_SYS(ioctl), 1, 0xFF00, 0x3B00},        // VFIO
    {SCMP_SYS(ioctl), 1, 0xFF00, 0xAF00},        // vhost
    {SCMP_SYS(ioctl), 1, kLow, 0x80086601},      // FS_IOC_GETFLAGS, FS_IOC_SETFLAGS: holes in shared memory are forbidden
    {SCMP_SYS(ioctl), 1, kLow, 0x40086602},
    {SCMP_SYS(ioctl), 1, kLow, 0x5401},          // TCGETS: is it a terminal?
    {SCMP_SYS(ioctl), 1, kLow, 0x5411},          // SIOCOUTQ: bytes that clients have not read
    {SCMP_SYS(ioctl), 1, kLow, 0x541B},          // FIONREAD
    {SCMP_SYS(ioctl), 1, kLow, 0x5421},          // FIONBIO
};

constexpr size_t kNames = 512;
using Names = std::array<std::array<char, 24>, kNames>;
Names* names = nullptr;  // for the signal handler only; lives as long as the process

// Looks names up beforehand, because the lookup allocates.
void look_up_names() {
  names = new Names{};
  for (size_t i = 0; i < kNames; ++i) {
    char* const name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, static_cast<int>(i));
    std::strncpy((*names)[i].data(), name == nullptr ? "?" : name, (*names)[i].size() - 1);
    std::free(name);
  }
}

void say(std::string_view text) { static_cast<void>(!write(STDERR_FILENO, text.data(), text.size())); }

// Runs in the thread that made the call, which was not executed.
void on_violation(int, siginfo_t* info, void*) {
  const auto number = static_cast<size_t>(info->si_syscall);
  say("unetd: the system call ");
  say(number < kNames ? (*names)[number].data() : "?");
  say(" is not one that unetd needs, and ends it. If a driver or a name service of this machine does need it: --no-seccomp\n");
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGSYS, &action, nullptr);
  raise(SIGSYS);  // delivered when the handler returns, before the thread goes on
}

int add_rules(scmp_filter_ctx filter, const std::vector<std::string>& ports) {
  int error = 0;
  const auto allow = [&](int call) { error = error != 0 ? error : seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0); };
  const auto allow_masked = [&](const Masked& m) {
    const scmp_arg_cmp compare{m.argument, SCMP_CMP_MASKED_EQ, m.mask, m.value};
    if (error == 0) error = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, m.call, 1, &compare);
  };
  for (const int call : kAlways) allow(call);
  for (const Masked& masked : kMasked) allow_masked(masked);
  // For abort() and the handler above, of this process only.
  allow_masked({SCMP_SYS(tgkill), 0, kLow, static_cast<uint64_t>(getpid())});
  // The arguments of clone3() are in memory, which no filter can read; with ENOSYS the C library uses clone().
  if (error == 0) error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
  bool interfaces = false, xdp = false;
  for (const std::string& port : ports) {
    const std::string wire = port.substr(port.rfind(" / ") + 1);  // without wrappers: their file names are arbitrary; npos + 1 is 0
    interfaces = interfaces || wire.find("net_memif") == std::string::npos;
    xdp = xdp || wire.find("net_af_xdp") != std::string::npos;
  }
  if (interfaces) allow_masked({SCMP_SYS(socket), 0, kLow, AF_NETLINK});
  for (const int call : kXdp) {
    if (xdp) allow(call);
  }
  return error;
}

}  // namespace

bool syscall_filter_available() noexcept {
#if defined(UNET_SANITIZED)
  return false;
#else
  return true;
#endif
}

Status install_syscall_filter(const std::vector<std::string>& ports) {
  const Filter filter(seccomp_init(SCMP_ACT_TRAP), &seccomp_release);
  if (filter == nullptr) return fail(Errc::out_of_memory, "no memory for the filter of system calls");
  look_up_names();
  struct sigaction action {};
  action.sa_sigaction = on_violation;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, nullptr);
  int error = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1);  // all threads, the drivers' included
  if (error == 0) error = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);  // binary search: some calls are frequent
  // Older kernels slow down a filtered process on purpose, against foreign code inside it: unetd runs none.
  if (error == 0) error = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_SSB, 1);
  if (error == 0) error = add_rules(filter.get(), ports);
  if (error == 0) error = seccomp_load(filter.get());
  if (error == 0) return {};
  return fail(Errc::system, std::string("the kernel takes no filter of system calls (") + std::strerror(-error) +
                                "): --no-seccomp does without");
}

}  // namespace unet::unetd
